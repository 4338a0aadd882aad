"""What trainers ask of their callbacks: a callback of another trainer says which import is
right.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# What a trainer first asks of a callback, and which of memlab's modules is for it.
_ASKED = {
    "run_event": ("Composer", "composer"),
    "state_key": ("Lightning", "lightning"),
    "setup": ("Lightning", "lightning"),
    "on_exception": ("Lightning", "lightning"),
    "on_init_end": ("Transformers", "huggingface"),
    "on_train_begin": ("Transformers", "huggingface"),
}
_IN_EACH = "MemorySnapshot", "MemoryMonitor"


class OtherTrainers:
    """A class whose objects may be given to a trainer that they are not for."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self)
            text = f"{kind.__name__!r} object has no attribute {name!r}"
            if name in _ASKED:
                trainer, module = _ASKED[name]
                wanted = next((k.__name__ for k in kind.__mro__ if k.__name__ in _IN_EACH), "")
                place = f"memlab.callbacks.{module}"
                # Where users have it from, not where it is made.
                home = kind.__module__.partition("._")[0]
                text += f": {home}.{kind.__qualname__} is not for {trainer}; "
                text += f"write: from {place} import {wanted or '...'}"
            raise AttributeError(text, name=name, obj=self)
