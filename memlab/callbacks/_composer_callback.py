"""What memlab's callbacks for Composer share: the calls of its engine, and what they read.

Knows of Composer's objects only what they are called with, and imports none of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

from memlab import _names, _store
from memlab._composer_hooks import sender
from memlab._errors import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Callback:
    """What Composer's engine asks of a callback, and a guard for the training run.

    Of the engine's events those arrive that a subclass has a method for.
    """

    _told = frozenset()

    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Calls the method named as EVENT, where there is one."""
        method = getattr(self, event.value, None)
        if method is not None:
            method(state, logger)

    def close(self, state: Any, logger: Any) -> None:
        """The trainer ends."""

    def post_close(self) -> None:
        """After every callback's close()."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a checkpoint keeps nothing of this callback."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Whatever is raised within is told, and goes no further."""
        try:
            yield
        except Exception as error:
            self._complain(what, f"{type(error).__name__}: {error}")

    def _complain(self, what, reason):
        """Warns that WHAT, once for each."""
        if what not in self._told:
            self._told |= {what}
            tell(f"{type(self).__name__}: {what}: {reason}; the training goes on")

    def _send(self, logger, path, name, overwrite):
        """Uploads the file at PATH by LOGGER as NAME; returns whether that was done."""
        try:
            sender(logger)(path, name, overwrite)
        except FileExistsError as error:
            self._complain(
                "a file was not uploaded and stays here; overwrite=True would replace "
                "what is there",
                _store.described(error),
            )
        except Exception as error:
            # Its text may have credentials in it.
            self._complain(
                "a file was not uploaded and stays here", _store.described(error)
            )
        else:
            return True
        return False


def model_device(model: Any) -> Any:
    """The torch.device of MODEL's first parameter; None where it has none."""
    return next((parameter.device for parameter in model.parameters()), None)


def group() -> Any:
    """torch.distributed, where this process is one of a group; else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    return distributed if distributed.is_initialized() else None


def on_cpu(state: Any, what: str) -> bool:
    """Whether the model is on another device than a GPU; warns then that WHAT."""
    device = model_device(state.model)
    if device is None or device.type in ("cuda", "meta"):
        return False
    warnings.warn(
        f"{what}, but the model is on {device.type}.", UserWarning, stacklevel=3
    )
    return True


def prepare_folder(template: str, run_name: str, overwrite: bool) -> str:
    """Makes the folder of this rank, and returns its path, which the program's going to
    another folder leaves as it is.

    Raises FileExistsError where OVERWRITE is false and it has files, OSError where it
    cannot be made, ValueError for a name that leads out of it.
    """
    folder = os.path.abspath(_names.fill(template, run_name=run_name))
    os.makedirs(folder, exist_ok=True)
    if not overwrite:
        _names.require_empty(folder)
    return folder
