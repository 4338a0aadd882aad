"""Composer's events for a callback, and the facts that callbacks read from its objects.

Owns the way from Composer's events and timestamps to memlab.MemorySnapshot's window.
Imports nothing of Composer; its objects are known by their attributes.  Once the program
has imported Composer, its checks of types hold for memlab's callbacks too.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings

from memlab._files.times import Progress
from memlab._native.importing import when_imported
from memlab._record import composer_uploads
from memlab._record.other_trainers import OtherTrainers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from memlab._record.window import Window

_COUNTERS = (
    "epoch",
    "batch_in_epoch",
    "sample",
    "sample_in_epoch",
    "token",
    "token_in_epoch",
    "iteration",
)
_CLOCKS = ("total_wct", "epoch_wct", "batch_wct")


def progress(state: Any) -> Progress:
    """The training's progress by Composer's STATE."""
    timestamp = state.timestamp
    found = Progress(batch=int(timestamp.batch))
    for name in _COUNTERS:
        setattr(found, name, int(getattr(timestamp, name, 0)))
    for name in _CLOCKS:
        clock = getattr(timestamp, name, None)
        seconds = getattr(clock, "total_seconds", None)
        setattr(found, name, float(seconds() if seconds else clock or 0.0))
    found.fraction = _fraction(state)
    return found


def _fraction(state):
    """The share of the training that is done; None if its length is unknown."""
    try:
        whole, timestamp, length = state.max_duration, state.timestamp, state.dataloader_len
        unit = getattr(whole.unit, "value", whole.unit)
        if unit == "ep" and length is not None and int(length) > 0:
            # Epochs count at their end; shares advance within them.
            batches = int(timestamp.batch_in_epoch) / int(length)
            return (int(timestamp.epoch) + batches) / int(whole.value)
        return float(state.get_elapsed_duration())
    except (AttributeError, TypeError, ArithmeticError):
        return None


def model_device(model: Any) -> Any:
    """The torch.device of MODEL's first parameter; None if it has none."""
    parameters = getattr(model, "parameters", None)
    first = None if parameters is None else next(iter(parameters()), None)
    return None if first is None else first.device


def on_cpu(state: Any, what: str) -> bool:
    """Whether the model is on a device other than a GPU; warns then that WHAT."""
    device = model_device(getattr(state, "model", None))
    if device is None or device.type in ("cuda", "meta"):
        return False
    text = f"{what}, but the model is on {device.type}."
    warnings.warn(text, UserWarning, stacklevel=3)
    return True


def stands_for(kind: type, module: str, name: str) -> None:
    """Makes KIND a virtual subclass of Composer's class NAME in MODULE, for isinstance() and
    issubclass(), as soon as the program has imported that.
    """

    def register(found: ModuleType) -> None:
        theirs = getattr(found, name, None)
        if hasattr(theirs, "register"):
            theirs.register(kind)

    try:
        there = "composer" in sys.modules or importlib.util.find_spec("composer")
    except (ImportError, ValueError):
        there = None
    if there:
        when_imported(module, register)


def resumes() -> bool:
    """Whether the Trainer that is being made goes on from a checkpoint.  Its state tells
    only later, after init; the arguments of its caller tell it now.
    """
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__init__" and "autoresume" in code.co_varnames:
            given = frame.f_locals
            return bool(given.get("autoresume") or given.get("load_path"))
        frame = frame.f_back
    return False


class Callback(OtherTrainers):
    """Composer's interface of a callback, without Composer's base class.

    A subclass receives the engine's events for which it has a method.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        before = order[: order.index(Callback)]
        theirs = next((k for k in before if k.__module__.startswith("composer.")), None)
        if theirs is not None:
            ours = next(k for k in cls.__bases__ if Callback in k.__mro__)
            raise TypeError(
                f"class {cls.__name__}: the empty methods of Composer's {theirs.__name__} "
                f"come before those of {ours.__name__}, which would record nothing; write "
                f"class {cls.__name__}({ours.__name__}, {theirs.__name__})"
            )

    def run_event(self, event: Any, state: Any, logger: Any) -> None:
        """Calls the method with the name of EVENT, if there is one."""
        method = getattr(self, event.value, None)
        if method is not None:
            method(state, logger)

    def close(self, state: Any, logger: Any) -> None:
        """The trainer ends."""

    def post_close(self) -> None:
        """Does nothing: every callback's close() has written everything."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: a resumed run is another process, whose memory is recorded anew."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing, as state_dict() says."""


stands_for(Callback, "composer.core.callback", "Callback")


class ComposerHooks(Callback):
    """The events of Composer's engine, for memlab.MemorySnapshot's window."""

    _window: Window

    def init(self, state: Any, logger: Any) -> None:
        """Makes the folder.  If the model is on no GPU and no source was given, warns
        and records nothing.

        Raises FileExistsError for a folder with files, but for a run that is resumed;
        ValueError for a name that leads out of it, OSError.
        """
        device = model_device(getattr(state, "model", None))
        # A model on meta moves to the GPU later.
        on = "cuda" if device is None or device.type == "meta" else device.type
        if self._window.lacks_gpu(on):
            return
        self._window.open(resumed=resumes(), run_name=state.run_name)
        composer_uploads.make_uploader(self._window.remote_file_name, state, logger)
        self._window.send = composer_uploads.sender(logger)

    def batch_start(self, state: Any, logger: Any) -> None:
        """Begins to record after skip_batches."""
        self._tell("batch_start", state)

    def batch_end(self, state: Any, logger: Any) -> None:
        """Ends the recording after interval, and writes and sends it."""
        self._tell("batch_end", state)

    def epoch_end(self, state: Any, logger: Any) -> None:
        """As batch_end(): epochs are counted after the last of their batches."""
        self._tell("advance", state)

    def iteration_end(self, state: Any, logger: Any) -> None:
        """As batch_end(): iterations are counted after their epochs."""
        self._tell("advance", state)

    def fit_end(self, state: Any, logger: Any) -> None:
        """Writes the recording if the interval has not passed."""
        self._tell("close", state)

    def close(self, state: Any = None, logger: Any = None) -> None:
        """Writes the recording if the interval has not passed."""
        if state is None:
            self._window.close()
        else:
            self._tell("close", state)

    def _tell(self, what, state):
        window = self._window
        if window.over:
            return
        try:
            getattr(window, what)(progress(state))
        except Exception as error:
            window.fail("the recording of memory was given up", error)
