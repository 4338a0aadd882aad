"""memlab in Lightning's Trainer, `lightning` or `pytorch_lightning`.

    from memlab.callbacks.lightning import MemorySnapshot, MemoryMonitor

    Trainer(callbacks=[MemorySnapshot(), MemoryMonitor()])

MemorySnapshot records a window of the training, MemoryMonitor logs figures, MemProfiler
collects figures at the start and the end of chosen functions.  Owns the translation from
Lightning's hooks to these.  The callbacks derive from the Callback of whichever
Lightning the program has imported; the Trainer of the other takes them too.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time

from memlab._errors import tell
from memlab._files import times
from memlab._monitor import metrics, sinks
from memlab._record import memory_snapshot
from memlab._record.other_trainers import OtherTrainers
from memlab._record.windowed import OfSnapshot
from memlab.callbacks._memprofiler import profiler_hooks
from memlab.callbacks._memprofiler.config import (
    MemProfilerCfg,
    MemProfilerFuncs,
    MemProfilerHooks,
    MemProfilerSchedule,
)
from memlab.callbacks._memprofiler.profiler import (
    MemProfiler,
    MemProfInternalState,
    memprofilable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "MemProfInternalState",
    "MemProfiler",
    "MemProfilerCfg",
    "MemProfilerFuncs",
    "MemProfilerHooks",
    "MemProfilerSchedule",
    "MemoryMonitor",
    "MemorySnapshot",
    "ProfilerHooksMixin",
    "memprofilable",
]

_LIGHTNINGS = "lightning.pytorch", "pytorch_lightning"


def _callbacks():
    """The Callback of each Lightning that the program has imported, or else of the
    installed one.
    """
    imported = map(sys.modules.get, _LIGHTNINGS)
    found = [package.Callback for package in imported if package is not None]
    for name in _LIGHTNINGS:
        if found:
            break
        try:
            found.append(importlib.import_module(name).Callback)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    if not found:
        raise ModuleNotFoundError(
            "memlab.callbacks.lightning needs lightning or pytorch_lightning: "
            "pip install lightning",
            name="lightning",
        )
    return tuple(found)


class _Callback(*_callbacks(), OtherTrainers):
    """The interface of a callback for Lightning's Trainer."""


class _AtException(_Callback):
    """Makes a profiler write its files and finish if an exception or Ctrl-C ends the
    training; Lightning then calls no hook of the module.
    """

    def __init__(self, profiler):
        super().__init__()
        self._profiler = profiler

    def on_exception(self, trainer, pl_module, exception):
        self._profiler._finish()


class ProfilerHooksMixin(profiler_hooks.ProfilerHooksMixin):
    __doc__ = profiler_hooks.ProfilerHooksMixin.__doc__

    def configure_callbacks(self) -> list[Any]:
        """The callbacks of the next base class, and one that writes the files after an
        exception.
        """
        found = super().configure_callbacks()
        found = list(found) if isinstance(found, list | tuple) else [found]
        there = getattr(self._trainer, "callbacks", ())
        if self.memprofiler and not any(map(self._is_ours, there)):
            found.append(_AtException(self.memprofiler))
        return found

    def _is_ours(self, callback):
        """Of an earlier fit(), which would otherwise be reported as replaced."""
        ours = isinstance(callback, _AtException)
        return ours and callback._profiler is self.memprofiler


def _place(trainer, template):
    """The folder to which TEMPLATE is relative, and the run's name, NAME/VERSION.  log_dir
    is in that folder with that name or, for loggers without a folder for each run, is the
    folder.  The same on all ranks, which must all call it.
    """
    folder = os.path.abspath(trainer.log_dir or trainer.default_root_dir)
    if trainer.loggers:
        logger = trainer.loggers[0]
        version = logger.version
        if isinstance(version, int):
            version = f"version_{version}"
        name = "/".join(str(part).strip("/") for part in (logger.name, version) if part)
    else:
        name = ""
    # Some loggers' names are empty, as in a fast_dev_run.  Then log_dir is the folder, of
    # which only {run_name} is the name.
    within = name or "{run_name}" in template
    name = name or os.path.basename(folder) or "run"
    if within and folder.endswith(f"/{name}"):
        folder = folder[: -len(name)]
    # Other ranks' loggers may have found another free version.
    return trainer.strategy.broadcast((folder, name))


def _first_tensor(batch):
    """The first tensor in BATCH, a tensor or collections of them; None: there is none.
    """
    if hasattr(batch, "shape") and hasattr(batch, "numel"):
        return batch
    if hasattr(batch, "values") and callable(batch.values):
        batch = batch.values()
    elif not isinstance(batch, list | tuple):
        return None
    return next((t for t in map(_first_tensor, batch) if t is not None), None)


def _tokens(batch):
    if not hasattr(batch, "keys") or "input_ids" not in batch:
        return 0
    return batch["input_ids"].numel()


class _Count:
    """A Trainer's progress, by its loops, its batches, and the clock."""

    def __init__(self):
        self._begun = self._epoch_begun = self._batch_begun = time.monotonic()
        self._epoch = 0
        self._samples = self._epoch_samples = 0
        self._tokens = self._epoch_tokens = 0

    def epoch_begins(self, trainer):
        self._epoch = trainer.current_epoch
        self._epoch_begun = time.monotonic()
        self._epoch_samples, self._epoch_tokens = self._samples, self._tokens

    def epoch_ends(self):
        self._epoch += 1

    def batch_begins(self):
        self._batch_begun = time.monotonic()

    def batch_ends(self, trainer, batch):
        first = _first_tensor(batch)
        size = first.shape[0] if first is not None and len(first.shape) else 1
        # Ranks with batches of their own, assumed to be of one size.
        ranks = (trainer.distributed_sampler_kwargs or {}).get("num_replicas", 1)
        self._samples += size * ranks
        self._tokens += _tokens(batch) * ranks

    def progress(self, trainer, ended):
        """ENDED: 1 if the batch that the loop counts has ended, else 0."""
        now = time.monotonic()
        loop = trainer.fit_loop.epoch_loop
        batch = loop.total_batch_idx + ended
        return times.Progress(
            epoch=self._epoch,
            batch=batch,
            batch_in_epoch=loop.batch_idx + ended,
            sample=self._samples,
            sample_in_epoch=self._samples - self._epoch_samples,
            token=self._tokens,
            token_in_epoch=self._tokens - self._epoch_tokens,
            total_wct=now - self._begun,
            epoch_wct=now - self._epoch_begun,
            batch_wct=now - self._batch_begun,
            fraction=_fraction(trainer, batch),
        )


def _fraction(trainer, batch):
    """The share of the training that is done after BATCH; None if its end is unknown.
    """
    shares = []
    if trainer.max_steps > 0:
        shares.append(trainer.global_step / trainer.max_steps)
    batches = (trainer.max_epochs or 0) * trainer.num_training_batches
    if 0 < batches < float("inf"):
        shares.append(batch / batches)
    return min(max(shares), 1.0) if shares else None


class MemorySnapshot(OfSnapshot, _Callback):
    """Records the memory of some batches of a training, and writes the recording.

        Trainer(callbacks=[MemorySnapshot()])

    Takes the arguments of memlab.MemorySnapshot, which mean here: a batch is one of the
    training loop; samples are those of all ranks, as the first tensor of each batch
    tells by its first dimension; tokens are the elements of input_ids, where batches
    have that; the fraction of the training is that of max_steps or max_epochs.
    Lightning counts no iterations.  run_name is the logger's name and version, and
    folder is relative to the folder in which the logger has these, so that what is
    written by default is in torch_traces in log_dir.  The files are uploaded if
    remote_file_name is a URI.

    Every rank writes its own files.  The end of the training and an exception end the
    recording too, and write it.  It records once, however often fit() is called.
    snapshot is the memlab.MemorySnapshot, whose answers stay.

    Raises ValueError, TypeError or memlab.Error for invalid arguments; as
    fit() begins FileExistsError if the folder has files and overwrite is not set,
    but for a training from a checkpoint, which writes its files beside these.
    """

    @functools.wraps(memory_snapshot.MemorySnapshot.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.snapshot = memory_snapshot.MemorySnapshot(*args, **kwargs)
        self._arguments = args, kwargs
        self._count = None
        if self.interval.unit == "iter":
            raise ValueError(
                "interval: Lightning counts no iterations; give batches, '3ba', or "
                "epochs, '1ep'"
            )

    def __reduce__(self):
        # Strategies that spawn copy callbacks; a copy has recorded nothing.
        args, kwargs = self._arguments
        return functools.partial(type(self), *args, **kwargs), ()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Makes the folder at the start of the first training."""
        if stage != "fit" or self._count is not None:
            return
        self._count = _Count()
        window = self._window
        folder, run_name = _place(trainer, self.folder)
        if window.lacks_gpu(trainer.strategy.root_device.type):
            return
        window.open(folder, resumed=bool(trainer.ckpt_path), run_name=run_name)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Counts the epoch."""
        self._tell(trainer, None, lambda count: count.epoch_begins(trainer))

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Begins to record after skip_batches."""
        self._tell(trainer, "batch_start", lambda count: count.batch_begins(), ended=0)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Ends the recording after interval, and writes and sends it."""
        self._tell(trainer, "batch_end", lambda count: count.batch_ends(trainer, batch))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """As on_train_batch_end(): epochs are counted after their last batch."""
        self._tell(trainer, "advance", lambda count: count.epoch_ends())

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Writes the recording if the interval has not passed."""
        self._tell(trainer, "close", lambda count: None)

    def on_exception(
        self, trainer: Any, pl_module: Any, exception: BaseException
    ) -> None:
        """As on_train_end(), whatever ended the training."""
        self._window.close()

    def _tell(self, trainer, what, count, ended=1):
        window = self._window
        if window.over or self._count is None:
            return
        try:
            count(self._count)
            if what is not None:
                getattr(window, what)(self._count.progress(trainer, ended))
        except Exception as error:
            window.fail("the recording of memory was given up", error)


class MemoryMonitor(_Callback):
    """Logs memlab.metrics() with the Trainer's loggers, every log_every_n_steps.

        Trainer(callbacks=[MemoryMonitor()], logger=CSVLogger("logs"))

    Lightning's loggers show the figures of rank 0.

    tensorboard: a folder for TensorBoard's events of every rank, or a SummaryWriter;
    prometheus: a port at which Prometheus finds the last figures; both as in
    memlab.MemoryMonitor, and both work without a logger.

    Raises ValueError, TypeError or memlab.Error for invalid arguments.
    Nothing is logged while the model is not on a GPU; the end of the training says so.
    """

    def __init__(
        self, *, tensorboard: Any = None, prometheus: int | str | None = None
    ) -> None:
        super().__init__()
        self._places = tensorboard, prometheus
        self._sinks = sinks.Sinks(*self._places)
        self._failed = False
        self._why_not = ""  # why nothing is logged

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port for Prometheus; None without it, and before the first figures."""
        return self._sinks.address

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins anew: another training ended the sinks, or this process was forked."""
        if stage == "fit":
            self._sinks = sinks.Sinks(*self._places)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs the figures, if other metrics of this step are logged too."""
        if self._failed:
            return
        try:
            if not trainer._logger_connector.should_update_logs:
                return
            device = trainer.strategy.root_device
            if device.type != "cuda":
                self._why_not = f"the model is on {device.type}"
                return
            if not trainer.loggers and self._places == (None, None):
                self._why_not = (
                    "the Trainer has no logger; give it one, or tensorboard= or prometheus="
                )
            found = metrics.metrics(device)
            step = trainer.fit_loop.epoch_loop._batches_that_stepped
            for logger in trainer.loggers if found else ():
                logger.log_metrics(found, step=step)
            self._sinks.write(found, step)
        except Exception as error:
            self._failed = True
            tell(f"no memory metrics are logged: {type(error).__name__}: {error}")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Flushes the sinks, and tells why nothing was logged."""
        self._sinks.close()
        if self._why_not:
            tell(f"MemoryMonitor logged nothing: {self._why_not}")
            self._why_not = ""

    def on_exception(
        self, trainer: Any, pl_module: Any, exception: BaseException
    ) -> None:
        """As on_train_end()."""
        self._sinks.close()
