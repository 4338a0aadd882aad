"""Composer's events for a callback, and the facts that callbacks read from its objects.

Owns the way from Composer's events and timestamps to memlab.MemorySnapshot's window.
Imports nothing of Composer; its objects are known by their attributes.
"""

from __future__ import annotations

import warnings
import weakref

from memlab._files import names
from memlab._files.times import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
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


# By logger: the names of files that it was given.
_sent: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def sender(logger: Any) -> Any:
    """A function that sends a file as Composer does: to all loggers that take files,
    under the path of its name.  If the name is a URI whose bucket no logger has, it
    goes to the URI.  Without OVERWRITE, a name that a callback has used gets a number.
    """

    def send(path: str, name: str, overwrite: bool) -> None:
        if not overwrite:
            name = names.not_taken(name, _sent.setdefault(logger, set()))
        try:
            logger.upload_file(
                remote_file_name=names.remote_key(name),
                file_path=path,
                overwrite=overwrite,
            )
        finally:
            if names.is_uri(name) and not _has_bucket(logger, name):
                from memlab._files import upload

                upload.send(path, name, overwrite)

    return send


def _has_bucket(logger, uri):
    """Whether a logger of Composer's has the bucket of URI; true for a logger that does
    not tell its destination.
    """
    destinations = getattr(logger, "destinations", None)
    if destinations is None:
        return True
    # Some backends have another name than their scheme; dbfs:/path has only one.
    scheme, _, rest = uri.partition(":")
    bucket = rest.removeprefix("//").partition("/")[0].partition("@")[0]
    name, wanted = (
        ("remote_bucket_name", bucket) if bucket else ("remote_backend_name", scheme)
    )
    return any(getattr(d, name, None) == wanted for d in destinations)


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


class Callback:
    """Composer's interface of a callback, without Composer's base class.

    A subclass receives the engine's events for which it has a method.
    """

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


class ComposerHooks(Callback):
    """The events of Composer's engine, for memlab.MemorySnapshot's window."""

    _window: Window

    def init(self, state: Any, logger: Any) -> None:
        """Makes the folder.  If the model is on no GPU and no source was given, warns
        and records nothing.

        Raises FileExistsError for a folder with files, ValueError for a name that leads
        out of it, OSError.
        """
        device = model_device(getattr(state, "model", None))
        # A model on meta moves to the GPU later.
        on = "cuda" if device is None or device.type == "meta" else device.type
        if self._window.lacks_gpu(on):
            return
        self._window.send = sender(logger)
        self._window.open(run_name=state.run_name)

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
