"""Callbacks for Composer (mosaicml): `from memlab.callbacks.composer import ...`.

Each replaces Composer's callback of that name.  Composer itself is not imported: its
engine accepts any object with a callback's methods.
"""

from __future__ import annotations

import math
import os

from memlab import _core
from memlab._files import names
from memlab._monitor import metrics as _metrics
from memlab._monitor import sinks as _sinks
from memlab._page import page as _page
from memlab._record import oom
from memlab._record.composer_hooks import model_device, on_cpu, progress
from memlab._record.composer_uploads import make_uploader
from memlab._record.memory_snapshot import MemorySnapshot
from memlab.callbacks._composer.callback import (
    Callback,
    group,
    prepare_folder,
)
from memlab.callbacks._composer.profiler import Profiler
from memlab.callbacks._composer.schedule import (
    ProfilerAction,
    check_count,
    cyclic_schedule,
)
from memlab.callbacks._composer.torch_profiler import TorchProfiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "MemoryMonitor",
    "MemorySnapshot",
    "OOMObserver",
    "Profiler",
    "ProfilerAction",
    "TorchProfiler",
    "cyclic_schedule",
]


# ---- Out of memory ----

_OOM_NAME = "rank{rank}_oom"

_OOM_PAGES = {
    "_trace_plot.html": _page.of,
    "_segment_plot.html": lambda recording: recording.segments_page(None),
    "_segment_flamegraph.svg": lambda recording: recording.flame_svg("segments", None),
    "_memory_flamegraph.svg": lambda recording: recording.flame_svg("memory", None),
}


class _OomWatch(oom.Watch):
    """Writes the five files of an OOMObserver."""

    def __init__(self, observer):
        super().__init__(observer._snapshot, lambda last: (self._prefix + "_*",))
        self._observer = observer
        self._prefix = ""

    def _write_files(self, recording, number, last):
        self._prefix = self._observer._write_files(recording, last)
        return self._paths(last)


class OOMObserver(Callback):
    """Writes what CUDA's memory was used for when it runs out, before torch raises.

        trainer = Trainer(..., callbacks=[OOMObserver()])

    max_entries: newest events that are kept of each device.
    folder: of this rank's files, a format string with {run_name}, {rank}, {local_rank},
        {world_size}, {local_world_size} and {node_rank}.
    filename: prefix of the files' names, a format string with these and {epoch}, {batch},
        {sample} and so on, as TorchProfiler's.
    remote_file_name: prefix under which the loggers upload each; None uploads none.
    overwrite: whether files may be replaced; if not, the folder has to be empty at the
        start, except for names that begin with a dot.

    The files: PREFIX_snapshot.pickle, the recording, for torch's viewer and `memlab
    report`; PREFIX_trace_plot.html, memory over time; PREFIX_segment_plot.html, where
    each block lay; PREFIX_segment_flamegraph.svg and PREFIX_memory_flamegraph.svg, which
    calls held it.  They are of the first time in a run, and, with _last in the prefix, of
    the last, whose fields are those of the first.  torch's error is unchanged, and the run
    goes on if the program catches it.

    files: the paths of what was written.

    Raises, at the start of the training, FileExistsError for a folder that is not empty,
    but for a run that is resumed.
    With a model on the CPU it does nothing, after a warning.
    """

    def __init__(
        self,
        max_entries: int = 100_000,
        folder: str = "{run_name}/torch_traces",
        filename: str = _OOM_NAME,
        remote_file_name: str | None = "{run_name}/oom_traces/rank{rank}_oom",
        overwrite: bool = False,
    ) -> None:
        folder = names.check_template(folder, "folder")
        filename = names.check_template(filename, "filename")
        if remote_file_name is not None:
            names.check_template(remote_file_name, "remote_file_name")
        self.max_entries = max_entries
        self.folder = folder
        self.filename = filename
        self.remote_file_name = remote_file_name
        self.overwrite = overwrite
        # Made here, so that invalid arguments raise here.
        self._snapshot = MemorySnapshot(max_entries=max_entries, source="cuda")
        self._watch = self._state = self._logger = None
        self._enabled = True  # Composer's name for it
        self._first = None  # the training's progress at the first
        self._beside = ""  # the end of names beside those of an earlier run
        self._files: dict[str, None] = {}

    @property
    def files(self) -> list[str]:
        """The paths of the files of this run, in the order in which they were written."""
        return list(self._files)

    def init(self, state: Any, logger: Any) -> None:
        """Makes the folder and begins to record.  Raises as documented at the class."""
        # An earlier trainer may not have been closed.
        self.close(state, logger)
        self._enabled = not on_cpu(state, "OOMObserver only works on CUDA devices")
        if not self._enabled:
            return
        self._folder = prepare_folder(self.folder, state.run_name, self.overwrite)
        self._state, self._logger = state, logger
        self._sent = set()
        self._first, self._beside, self._files = None, "", {}
        make_uploader(self.remote_file_name, state, logger)
        with self._guard("it is off for this run"):
            self._snapshot.start()
            self._watch = _OomWatch(self)
            self._watch.begin()

    def close(self, state: Any, logger: Any) -> None:
        """Ends the recording."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        with self._guard("its recording did not end well"):
            self._snapshot.stop()
            watch.end(self._snapshot.data())
        self._state = self._logger = None

    def _write_files(self, recording, last):
        """Writes and uploads the files; returns the prefix of their paths."""
        run_name = self._state.run_name
        if self._first is None:
            # Fields that tell one from another would make files of all.
            self._first = progress(self._state)
        filename = names.fill(self.filename, self._first, run_name=run_name)
        filename += names.apart(self.folder, self.filename)
        prefix = names.inside(self._folder, filename)
        ending = "_last" if last else ""
        if not self.overwrite and not self._files:
            # Of the run that this one resumes.
            prefix, self._beside = names.unused(prefix, ["_snapshot.pickle", *_OOM_PAGES])
        else:
            prefix += self._beside
        prefix += ending
        os.makedirs(os.path.dirname(prefix), exist_ok=True)
        remote = self.remote_file_name
        if remote is not None:
            remote = names.remote(
                remote, self.filename, self._first, default=_OOM_NAME, run_name=run_name
            )
            remote += self._beside + ending
        # If not even this can be written, the watch reports it.
        recording.write_pickle(prefix + "_snapshot.pickle", True)
        self._written(prefix, remote, "_snapshot.pickle")
        for kind, page in _OOM_PAGES.items():
            with self._guard(f"{kind} was not written"):
                _core.write_file(prefix + kind, page(recording))
                self._written(prefix, remote, kind)
        return prefix

    def _written(self, prefix, remote, kind):
        self._files[prefix + kind] = None
        self._upload(prefix, remote, kind)

    def _upload(self, prefix, remote, kind):
        if remote is None:
            return
        # The last one replaces the previous last one.
        name = remote + kind
        overwrite = self.overwrite or name in self._sent
        if self._send(self._logger, prefix + kind, name, overwrite):
            self._sent.add(name)


# ---- Figures of every batch ----

# torch's counters, and Composer's names for them.
_MEMORY_KEYS = {
    "allocated_bytes.all.current": "current_allocated_mem",
    "active_bytes.all.current": "current_active_mem",
    "inactive_split_bytes.all.current": "current_inactive_mem",
    "reserved_bytes.all.current": "current_reserved_mem",
    "allocated_bytes.all.peak": "peak_allocated_mem",
    "active_bytes.all.peak": "peak_active_mem",
    "inactive_split_bytes.all.peak": "peak_inactive_mem",
    "reserved_bytes.all.peak": "peak_reserved_mem",
    "num_alloc_retries": "alloc_retries",
}

# memlab.metrics()' figures that Composer lacks, under their own names.
_FURTHER = ("fragmentation", "ooms", "unexplained_bytes")


def _gigabytes(count):
    """COUNT bytes in GB (1e9), to five significant digits."""
    if not count or math.isnan(count):
        return count
    gigabytes = count / 1e9
    return round(gigabytes, 4 - math.floor(math.log10(abs(gigabytes))))


class MemoryMonitor(Callback):
    """Logs how much of the GPU's memory is in use, after every batch.

        trainer = Trainer(..., callbacks=[MemoryMonitor()])

    memory_keys: {name in torch.cuda.memory_stats(): name to log}; None for the table
        below.  Bytes are logged in GB (1e9 bytes), rounded to five
        significant digits, "bytes" in its name as "gigabytes".
    dist_aggregate_batch_interval: every so many batches, also the figures' mean, minimum
        and maximum over all ranks, under names that end in _avg, _min and _max.  It takes a
        collective operation of all ranks.  None: never.
    tensorboard, prometheus: where the figures of memlab.metrics() go as well, as in
        memlab.MemoryMonitor.

    Logged under memory/: current_ and peak_ of allocated_mem, active_mem, inactive_mem
    and reserved_mem; alloc_retries; and, in the units of memlab.metrics(), fragmentation,
    ooms and unexplained_bytes.

    Raises TypeError or ValueError for invalid arguments.  Nothing is logged
    while the model is not on a GPU.
    """

    def __init__(
        self,
        memory_keys: dict[str, str] | None = None,
        dist_aggregate_batch_interval: int | None = None,
        *,
        tensorboard: Any = None,
        prometheus: Any = None,
    ) -> None:
        if memory_keys is not None and not isinstance(memory_keys, dict):
            raise TypeError(f"memory_keys must be a dict or None, not {memory_keys!r}")
        if dist_aggregate_batch_interval is not None:
            check_count("dist_aggregate_batch_interval", dist_aggregate_batch_interval, 1)
        self.memory_keys = memory_keys
        self.dist_aggregate_batch_interval = dist_aggregate_batch_interval
        # torch's names by logged names.
        self._keys = {
            name.replace("bytes", "gigabytes") if "bytes" in key else name: key
            for key, name in (memory_keys or _MEMORY_KEYS).items()
        }
        self._further = () if memory_keys else _FURTHER
        self._targets = tensorboard, prometheus
        self._sinks = _sinks.Sinks(*self._targets)

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port for Prometheus; None without it, and before the first batch."""
        return self._sinks.address

    def init(self, state: Any, logger: Any) -> None:
        """Warns if the model is on the CPU."""
        on_cpu(state, "The memory monitor only works on CUDA devices")
        # An earlier trainer may not have been closed.
        self.close(state, logger)
        self._sinks = _sinks.Sinks(*self._targets)

    def after_train_batch(self, state: Any, logger: Any) -> None:
        """Logs the figures."""
        device = model_device(state.model)
        if device is None or device.type != "cuda":
            return
        batch = int(state.timestamp.batch)
        figures = self._figures(device, batch)
        report = {name: self._shown(name, value) for name, value in figures.items()}
        every = self.dist_aggregate_batch_interval
        if every is not None and batch % every == 0:
            # Even if a figure is missing here: the other ranks wait for this one.
            with self._guard("figures of all ranks could not be had"):
                for ending, values in _over_ranks(figures.values(), device).items():
                    for name, value in zip(figures, values, strict=True):
                        report[name + ending] = self._shown(name, value)
        with self._guard("figures were not logged"):
            logger.log_metrics(
                {
                    f"memory/{name}": value
                    for name, value in report.items()
                    if not math.isnan(value)
                }
            )

    def _figures(self, device, batch):
        """The figures, with the same names on every rank; NaN if unknown."""
        figures = dict.fromkeys((*self._keys, *self._further), math.nan)
        with self._guard("figures could not be read"):
            import torch

            counts = torch.cuda.memory_stats(device)
            for name, key in self._keys.items():
                figures[name] = counts.get(key, math.nan)
            metrics = _metrics.metrics(device)
            for name in self._further:
                figures[name] = metrics.get(f"memory/{name}", math.nan)
            self._sinks.write(metrics, batch)
        return figures

    def _shown(self, name, value):
        return _gigabytes(value) if "bytes" in self._keys.get(name, "") else value

    def close(self, state: Any, logger: Any) -> None:
        """Closes the sinks of the figures."""
        with self._guard("its outputs did not close"):
            self._sinks.close()


def _over_ranks(figures, device):
    """{"_avg": the means of FIGURES over all ranks, in their order, "_min": ...}."""
    import torch

    distributed = group()
    values = torch.tensor([float(value) for value in figures], dtype=torch.float64)
    if distributed is None or distributed.get_world_size() == 1:
        return dict.fromkeys(("_avg", "_min", "_max"), values.tolist())
    # On the CPU if possible, so that the GPU's memory does not change.
    if "cpu:" not in str(distributed.get_backend_config()):
        values = values.to(device)
    sums, ends = values.clone(), torch.cat([values, -values])
    distributed.all_reduce(sums, op=distributed.ReduceOp.SUM)
    distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
    greatest, least = ends.tolist()[: len(values)], ends.neg().tolist()[len(values) :]
    means = (sums / distributed.get_world_size()).tolist()
    return {"_avg": means, "_min": least, "_max": greatest}
