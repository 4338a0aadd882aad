"""memlab in torchtitan: memory snapshots by memlab, and memlab's metrics in its loggers.

    from memlab.callbacks.torchtitan import MetricsProcessor, Profiler

    config.profiler = Profiler.Config(enable_memory_snapshot=True)
    config.metrics = MetricsProcessor.Config(enable_tensorboard=True)

Owns the replacements of torchtitan's own parts: the components Profiler and
MetricsProcessor, which came after torchtitan 0.2, and for 0.2
maybe_enable_memory_snapshot() and build_metrics_processor().
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys

from memlab import _core
from memlab._errors import Error, tell
from memlab._files import names
from memlab._monitor import metrics as _metrics
from memlab._native import sources
from memlab._record import memory_snapshot, oom

try:
    import torchtitan.tools.profiler as _titan_profiler
except ModuleNotFoundError as error:
    # torchtitan 0.2 and before have tools.profiling.
    if error.name not in ("torchtitan", "torchtitan.tools", "torchtitan.tools.profiler"):
        raise
    _titan_profiler = None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = [
    "MemoryProfiler",
    "add_memory_metrics",
    "build_metrics_processor",
    "maybe_enable_memory_snapshot",
]

# Events kept if the configuration does not tell, as in torchtitan 0.2.
_MAX_ENTRIES = 100_000

# Names of a step's folder, an out of memory's folder, and the file, as in torchtitan
# 0.2; later versions have constants.
_STEP_FOLDER = getattr(_titan_profiler, "MEMORY_STEP_DIR", "iteration_{step}")
_EXIT_FOLDER = getattr(_titan_profiler, "MEMORY_EXIT_DIR", "iteration_{step}_exit")
_FILE = getattr(_titan_profiler, "MEMORY_FILE", "rank{rank}_memory_snapshot.pickle")


class MemoryProfiler:
    """Records memory, and writes a snapshot every few steps, as torchtitan's does.

    step_num: the step after which training starts.  freq: steps between snapshots.
    snapshot_dir: the folder of the snapshots; each goes to a folder of its step, in
    LEAF_FOLDER there.  rank: for the names of the files.  max_entries: newest events
    kept for each device.

    Made for torchtitan by Profiler or maybe_enable_memory_snapshot() below.  Raises
    ValueError for an invalid size, OSError if the folder cannot be made, memlab.Error
    if there is nothing to record.
    """

    def __init__(
        self,
        step_num: int,
        freq: int,
        snapshot_dir: str,
        leaf_folder: str,
        rank: int,
        max_entries: int,
    ) -> None:
        if freq <= 0:
            raise ValueError(
                f"a memory snapshot every {freq} steps is not possible; set "
                "memory_snapshot_freq or profile_freq to 1 or more"
            )
        os.makedirs(snapshot_dir, exist_ok=True)
        self.step_num = step_num
        self.freq = freq
        # The program may change its working directory.
        self._folder = os.path.abspath(snapshot_dir)
        self._leaf_folder = leaf_folder
        self._rank = rank
        self._failed = False
        self._snapshot = memory_snapshot.MemorySnapshot(
            source="cuda", max_entries=max_entries
        ).start()

    def step(self, exit_ctx: bool = False) -> None:
        """Ends a training step; writes a snapshot if one is due.

        exit_ctx: training ends by an out of memory in the step; its account in words is
        written too. Raises nothing: the first failed write is warned of, and the next
        snapshot tries again.
        """
        self.step_num += 1
        if not exit_ctx and self.step_num % self.freq != 0:
            return
        try:
            if exit_ctx:
                self._write(self.step_num - 1, _EXIT_FOLDER, account=True)
            else:
                self._write(self.step_num, _STEP_FOLDER)
        except Exception as error:
            if not self._failed:
                self._failed = True
                tell(
                    f"the memory snapshot could not be written to {self._folder!r}: "
                    f"{error}; the training goes on"
                )

    def _write(self, step, folder, account=False):
        folder = os.path.join(self._folder, folder.format(step=step), self._leaf_folder)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, _FILE.format(rank=self._rank, step=step))
        recording = self._snapshot.data()
        recording.write_pickle(path, True)
        if account:
            text = oom.report_text(recording).encode("utf-8", "backslashreplace")
            _core.write_file(os.path.splitext(path)[0] + ".txt", text)

    def stop(self) -> None:
        """Ends the recording; other recordings, torch's included, continue.

        Raises nothing.
        """
        try:
            self._snapshot.stop()
        except Exception:
            # Everything is written already.
            pass


def _build(config, global_step, base_folder, leaf_folder):
    """The MemoryProfiler that CONFIG, torchtitan's, asks for; or None."""
    if not config.enable_memory_snapshot:
        return None
    if sources.default() != "cuda":
        tell("memory snapshots need a CUDA device, and there is none; none are written")
        return None
    freq = getattr(config, "memory_snapshot_freq", None)
    try:
        return MemoryProfiler(
            global_step,
            config.profile_freq if freq is None else freq,
            os.path.join(base_folder, config.save_memory_snapshot_folder),
            leaf_folder,
            names.ranks()["rank"],
            getattr(config, "memory_snapshot_max_entries", _MAX_ENTRIES),
        )
    except Error as error:
        tell(f"no memory snapshots are written: {error}")
        return None


@contextlib.contextmanager
def maybe_enable_memory_snapshot(
    profiling_config: Any,
    *,
    global_step: int = 0,
    base_folder: str = "",
    leaf_folder: str = "",
) -> Iterator[MemoryProfiler | None]:
    """Replaces torchtitan 0.2's function of this name in tools.profiling.

        from memlab.callbacks.torchtitan import maybe_enable_memory_snapshot

    profiling_config: the [profiling] part of the job's configuration, whose
    enable_memory_snapshot, save_memory_snapshot_folder and profile_freq are used.
    global_step: the step after which training starts.  base_folder: the job's folder.
    leaf_folder: a folder in that of each step.

    Returns the MemoryProfiler, whose step() ends each training step; None if the
    configuration requests none, and, with a warning, where there is no CUDA device.  An
    out of memory is written as iteration_X_exit, with a report in words, and raised
    again.  Raises ValueError for a profile_freq below 1, and OSError if the folder
    cannot be made.
    """
    profiler = _build(profiling_config, global_step, base_folder, leaf_folder)
    if profiler is None:
        yield None
        return
    try:
        yield profiler
    except sys.modules["torch"].cuda.OutOfMemoryError:
        profiler.step(exit_ctx=True)
        raise
    finally:
        profiler.stop()


if _titan_profiler is not None:
    __all__ += ["MetricsProcessor", "Profiler"]

    class Profiler(_titan_profiler.Profiler):
        """Replaces torchtitan's Profiler, later than 0.2: memlab writes the snapshots.

            config.profiler = Profiler.Config(enable_memory_snapshot=True)

        in a function of a config_registry; the options of the command line stay.  Traces
        are torchtitan's own, unchanged.
        """

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(_titan_profiler.Profiler.Config):
            """The fields of torchtitan's Profiler.Config, with the same meaning."""

        def build_memory_profiler(
            self, *, global_step: int, base_folder: str, leaf_folder: str
        ) -> MemoryProfiler | None:
            """The MemoryProfiler that the configuration asks for, or None.

            Raises as maybe_enable_memory_snapshot().
            """
            return _build(self._config, global_step, base_folder, leaf_folder)

        def __exit__(self, *exception: Any) -> bool:
            """Ends the recording, which torchtitan never ends."""
            profiler = self.memory_profiler
            try:
                return super().__exit__(*exception)
            finally:
                if profiler is not None:
                    profiler.stop()


class _Logger:
    """One of torchtitan's loggers, with memlab's metrics in each row."""

    def __init__(self, logger, prometheus):
        self._logger = logger
        self._monitor = _metrics.MemoryMonitor(prometheus=prometheus)

    def log(self, metrics, step):
        self._logger.log({**self._monitor.step(step), **metrics}, step)

    def close(self):
        self._monitor.close()
        self._logger.close()

    def __getattr__(self, name):
        return getattr(self._logger, name)


def add_memory_metrics(
    metrics_processor: Any, *, prometheus: int | str | None = None
) -> Any:
    """Adds memlab.metrics() to each row that a MetricsProcessor of torchtitan logs.

    They go to its loggers, TensorBoard and Weights & Biases, beside torchtitan's own
    figures. prometheus: as in memlab.MemoryMonitor; every rank has an endpoint, even
    without loggers.  Returns METRICS_PROCESSOR, of which only the logger is used: an
    object with log(metrics, step), of a dict and an int, and close().

    Raises MemoryMonitor's errors for prometheus.
    """
    metrics_processor.logger = _Logger(metrics_processor.logger, prometheus)
    return metrics_processor


if _titan_profiler is not None:
    import torchtitan.components.metrics as _titan_metrics

    class MetricsProcessor(_titan_metrics.MetricsProcessor):
        """Replaces torchtitan's MetricsProcessor, later than 0.2: add_memory_metrics().

            config.metrics = MetricsProcessor.Config(log_freq=1, enable_tensorboard=True)

        in a function of a config_registry.
        """

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(_titan_metrics.MetricsProcessor.Config):
            """Beside the fields of torchtitan's MetricsProcessor.Config:

            prometheus: as in memlab.MemoryMonitor.
            """

            prometheus: int | str | None = None
            """Port, or HOST:PORT, at which Prometheus finds the memory's figures."""

        def __init__(self, config: Config, **runtime: Any) -> None:
            super().__init__(config, **runtime)
            add_memory_metrics(self, prometheus=config.prometheus)


def build_metrics_processor(*args: Any, **kwargs: Any) -> Any:
    """Replaces torchtitan 0.2's function of this name in components.metrics.

        TrainSpec(..., build_metrics_processor_fn=build_metrics_processor)

    Takes the same arguments, and returns the same object after add_memory_metrics().
    """
    from torchtitan.components.metrics import build_metrics_processor as build

    return add_memory_metrics(build(*args, **kwargs))


def __getattr__(name):
    if name in ("Profiler", "MetricsProcessor"):
        raise AttributeError(
            f"memlab.callbacks.torchtitan.{name} extends a component of torchtitan later "
            "than 0.2, which is not installed; with 0.2, use "
            "maybe_enable_memory_snapshot and build_metrics_processor"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
