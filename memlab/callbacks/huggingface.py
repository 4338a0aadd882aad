"""memlab in the Trainer of Hugging Face Transformers, and in Trainers that derive from it.

    from memlab.callbacks.huggingface import MemoryMonitor, MemorySnapshot

    Trainer(..., callbacks=[MemorySnapshot(), MemoryMonitor()])

MemorySnapshot records a window of the training, MemoryMonitor logs figures.  Both have an
older name too, which ends in Callback.  Owns the translation from the Trainer's events, arguments and state to these.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time

from transformers import TrainerCallback
from transformers.trainer_callback import CallbackHandler

from memlab._files import times
from memlab._monitor import metrics
from memlab._record import memory_snapshot
from memlab._record.other_trainers import OtherTrainers
from memlab._record.windowed import OfSnapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from transformers import TrainerControl, TrainerState, TrainingArguments

__all__ = [
    "MemoryMonitor",
    "MemoryMonitorCallback",
    "MemorySnapshot",
    "MemorySnapshotCallback",
]


class _Count:
    """A Trainer's progress, by its TrainerState and the clock."""

    def __init__(self):
        self._begun = self._epoch_begun = self._step_begun = time.monotonic()
        self._epoch = self._epoch_step = self._epoch_tokens = 0

    def train_begins(self, args, state):
        """Possibly within an epoch, if a checkpoint is resumed."""
        self._epoch = int(state.epoch or 0)
        self._epoch_step = state.global_step
        self._epoch_tokens = state.num_input_tokens_seen
        if state.epoch and not args.ignore_data_skip:
            steps_per_epoch = state.global_step / state.epoch
            self._epoch_step -= round(state.epoch % 1 * steps_per_epoch)

    def epoch_begins(self):
        self._epoch_begun = time.monotonic()

    def epoch_ends(self, state):
        self._epoch += 1
        self._epoch_step = state.global_step
        self._epoch_tokens = state.num_input_tokens_seen
        self._epoch_begun = time.monotonic()

    def step_begins(self):
        self._step_begun = time.monotonic()

    def progress(self, args, state, loader):
        now = time.monotonic()
        step, tokens = state.global_step, state.num_input_tokens_seen
        samples = args.gradient_accumulation_steps * _samples_of_batch(args, state, loader)
        return times.Progress(
            epoch=self._epoch,
            batch=step,
            batch_in_epoch=step - self._epoch_step,
            sample=step * samples,
            sample_in_epoch=(step - self._epoch_step) * samples,
            token=tokens,
            token_in_epoch=tokens - self._epoch_tokens,
            total_wct=now - self._begun,
            epoch_wct=now - self._epoch_begun,
            batch_wct=now - self._step_begun,
            fraction=step / state.max_steps if state.max_steps > 0 else None,
        )


def _samples_of_batch(args, state, loader):
    """Samples of all ranks together in one forward pass."""
    try:
        # accelerate's loader knows which ranks share their samples.
        return loader.total_batch_size
    except (AttributeError, TypeError):
        return (state.train_batch_size or args.train_batch_size) * args.world_size


def _run_name(args):
    folder = args.output_dir
    # It may be the folder's path, of which loggers take the last part too.
    if args.run_name and args.run_name != folder:
        return args.run_name
    return os.path.basename(os.path.abspath(folder))


# run_name is usually a part of output_dir.
_SIGNATURE = inspect.signature(memory_snapshot.MemorySnapshot.__init__)
_SIGNATURE = _SIGNATURE.replace(
    parameters=[
        p.replace(default="torch_traces") if p.name == "folder" else p
        for p in _SIGNATURE.parameters.values()
    ]
)


class MemorySnapshot(OfSnapshot, TrainerCallback, OtherTrainers):
    """Records the memory of some training steps, and writes the recording.

        Trainer(..., callbacks=[MemorySnapshot()]).train()

    Takes the arguments of memlab.MemorySnapshot, which mean here: a batch is a training
    step of the Trainer, an optimizer step with all of its accumulation; samples are
    those of all ranks, in full batches; tokens are num_input_tokens_seen, for which
    TrainingArguments needs include_num_input_tokens_seen; the fraction of the training is
    that of max_steps.  A Trainer counts no iterations.  run_name is TrainingArguments'
    run_name, or else the last part of output_dir.  folder is relative to output_dir, and
    by default torch_traces.  The files are uploaded if remote_file_name is a URI.

    Every rank writes its own files.  The end of the training and of the program end the
    recording too, and write it.  It records once, however often train() is called.
    snapshot is the memlab.MemorySnapshot, whose answers stay.

    Raises ValueError, TypeError or memlab.Error for invalid arguments; when
    training begins FileExistsError if the folder has files and overwrite is not set,
    but for a resumed training, which writes its files beside these.
    """

    @functools.wraps(memory_snapshot.MemorySnapshot.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = _SIGNATURE.bind(self, *args, **kwargs)
        given.apply_defaults()
        _, *args = given.args
        kwargs = given.kwargs
        self.snapshot = memory_snapshot.MemorySnapshot(*args, **kwargs)
        if self.interval.unit == "iter":
            raise ValueError(
                "interval: a Trainer counts no iterations; give steps, '3ba', or epochs, "
                "'1ep'"
            )
        self._arguments = args, kwargs
        self._count = None

    __init__.__signature__ = _SIGNATURE

    def __reduce__(self):
        # A search for hyperparameters copies callbacks; a copy has recorded nothing.
        args, kwargs = self._arguments
        return functools.partial(type(self), *args, **kwargs), ()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Makes the folder, the first time."""
        if self._count is None:
            self._count = _Count()
            self._open(args, state)
        self._count.train_begins(args, state)

    def _open(self, args, state):
        window = self._window
        if window.lacks_gpu(args.device.type):
            return
        # A bool in older versions.
        tokens = window.interval.unit == "tok"
        if tokens and args.include_num_input_tokens_seen in ("no", False):
            raise ValueError(
                "interval: the Trainer counts tokens only with "
                "TrainingArguments(include_num_input_tokens_seen='all')"
            )
        resumed = bool(state.global_step)
        window.open(args.output_dir, resumed=resumed, run_name=_run_name(args))

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Notes the time."""
        if self._count is not None:
            self._count.epoch_begins()

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """As on_step_end(): an epoch is counted after the last of its steps."""
        if self._count is not None:
            self._count.epoch_ends(state)
            self._tell("advance", args, state, **kwargs)

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Begins to record after skip_batches."""
        if self._count is not None:
            self._count.step_begins()
            self._tell("batch_start", args, state, **kwargs)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Ends the recording after interval, and writes and sends it."""
        self._tell("batch_end", args, state, **kwargs)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Writes the recording if the interval has not passed."""
        self._tell("close", args, state, **kwargs)

    def _tell(self, what, args, state, train_dataloader=None, **kwargs):
        window = self._window
        if window.over or self._count is None:
            return
        try:
            getattr(window, what)(self._count.progress(args, state, train_dataloader))
        except Exception as error:
            window.fail("the recording of memory was given up", error)


def _go_first(callback):
    """Moves CALLBACK before the others of the Trainer that is calling it.

    A Trainer puts its loggers before the given callbacks, and offers no access to the
    list; but its handler is the caller.
    """
    frame = sys._getframe(1)
    while frame is not None:
        handler = frame.f_locals.get("self")
        if isinstance(handler, CallbackHandler):
            others = [other for other in handler.callbacks if other is not callback]
            if len(others) < len(handler.callbacks):
                # The handler is iterating over this list: those before CALLBACK move up
                # by one, so that each is called once.
                handler.callbacks[:] = [callback, *others]
            return
        frame = frame.f_back


class MemoryMonitor(TrainerCallback, OtherTrainers):
    """Adds memlab.metrics() to what the Trainer logs of its training.

        Trainer(..., callbacks=[MemoryMonitor()])

    They are in every row with the training's loss, so every logger of the Trainer gets
    them, as TensorBoard, Weights & Biases and the console, and TrainerState.log_history
    too.  Each rank adds its own; the Trainer's loggers show those of rank 0.

    tensorboard, prometheus: as in memlab.MemoryMonitor; every rank writes to them.

    Raises ValueError, TypeError or memlab.Error for an invalid option.
    """

    def __init__(
        self,
        *,
        tensorboard: Any = None,
        prometheus: int | str | None = None,
    ) -> None:
        self._options = {"tensorboard": tensorboard, "prometheus": prometheus}
        self._monitor = metrics.MemoryMonitor(**self._options)

    def __reduce__(self):
        # A writer for one process is of no use to another.
        return functools.partial(type(self), **self._options), ()

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint for Prometheus; None without one, and before
        the first figures.
        """
        return self._monitor.address

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Moves this callback before the loggers, which read a row one after the other.
        """
        _go_first(self)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds the metrics to LOGS, a row of the training."""
        # The program also gets rows of evaluations and of the whole training.
        if not logs or "loss" not in logs:
            return
        figures = self._monitor.step(state.global_step)
        logs.update(figures)
        # The Trainer keeps a copy of the row, made before this call.
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(figures)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Flushes TensorBoard, and ends the endpoint."""
        self._monitor.close()
        # There may be another training.
        self._monitor = metrics.MemoryMonitor(**self._options)


MemorySnapshotCallback = MemorySnapshot
MemoryMonitorCallback = MemoryMonitor
