"""memlab shows where the memory of a PyTorch training run goes, and when.

    import memlab

    with memlab.MemorySnapshot() as snapshot:      # record
        train()
    print(snapshot.summary())

    recording = memlab.open("memlab_out")          # or read what memlab run wrote
    recording.peak()["by_category"]                # bytes, for programs
    print(recording.diff("memlab_before"))         # text, for people

Record                MemorySnapshot, phase, step, mark, record_memory_history
Read                  open, merge: a Recording with peak(), summary(), at(), lines(),
                      modules(), events(), oom(), diff(), replay(), explain(), view()
The commands          report, view, diff, convert, explain, replay, tune, fit
While it trains       leaks, holders, MemReporter, ledger, stats, metrics, MemoryMonitor
Line by line          profile, LineProfiler, and %mlrun in a notebook
Lend the GPU          Courtesy
In a trainer          memlab.callbacks

A failure is a memlab.Error, whose text says what to do.  Sizes are in bytes and times in what
their key says, _us or _ns, as ints.  Importing memlab imports no torch, touches no GPU and
prints nothing.
"""

from typing import Any as _Any

from memlab._compare.diff import diff
from memlab._errors import Error, SnapshotError
from memlab._export.table import Table
from memlab._files.load import load
from memlab._fit.fit import fit
from memlab._lab.explain import explain
from memlab._lab.replay import replay
from memlab._lab.tune import tune
from memlab._lend.courtesy import Courtesy
from memlab._lines.lines import LineProfiler
from memlab._lines.profile import (
    clear_global_line_profiler,
    profile,
    profile_every,
    set_target_gpu,
)
from memlab._monitor.metrics import MemoryMonitor, metrics
from memlab._native.backends import backends
from memlab._native.sources import ledger, stats
from memlab._objects.holders import Holder, holders
from memlab._objects.leaks import leaks
from memlab._objects.mem_reporter import MemReporter
from memlab._record.annotations import mark, phase, step
from memlab._record.history import _record_memory_history as _record_memory_history
from memlab._record.history import (
    dump_snapshot,
    record_memory_history,
    snapshot,
)
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._recording.commands import convert, report
from memlab._recording.recording import Recording, merge, open
from memlab._recording.view import view
from memlab._report.peaks import CATEGORIES
from memlab._version import __version__ as __version__

# torch's own names, so that a script changes one import.
_snapshot = snapshot
_dump_snapshot = dump_snapshot


def _save_segment_usage(filename: str = "output.svg", snapshot: _Any = None) -> None:
    """viz.save_segment_usage()."""
    from memlab import viz

    viz.save_segment_usage(filename, snapshot)


def _save_memory_usage(filename: str = "output.svg", snapshot: _Any = None) -> None:
    """viz.save_memory_usage()."""
    from memlab import viz

    viz.save_memory_usage(filename, snapshot)


def load_ipython_extension(ipython: object) -> None:
    """Called by `%load_ext memlab`: adds %mlrun, %%mlrun and %memlab."""
    from memlab._notebook.ipython import MemlabMagics

    ipython.register_magics(MemlabMagics)


# Without `open`, which would hide the builtin where `*` is imported.
__all__ = [
    "CATEGORIES",
    "Courtesy",
    "Error",
    "Holder",
    "LineProfiler",
    "MemReporter",
    "MemoryMonitor",
    "MemorySnapshot",
    "Recording",
    "SnapshotError",
    "Table",
    "backends",
    "clear_global_line_profiler",
    "convert",
    "diff",
    "dump_snapshot",
    "explain",
    "fit",
    "holders",
    "leaks",
    "ledger",
    "load",
    "load_ipython_extension",
    "mark",
    "merge",
    "metrics",
    "phase",
    "profile",
    "profile_every",
    "record_memory_history",
    "replay",
    "report",
    "set_target_gpu",
    "snapshot",
    "stats",
    "step",
    "tune",
    "view",
]
