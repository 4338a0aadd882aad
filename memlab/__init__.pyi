"""What memlab/__init__.py has, for checkers of types."""

from memlab._compare.diff import diff
from memlab._compare.survey import survey
from memlab._errors import Error, SnapshotError
from memlab._export.table import Table
from memlab._files.load import load
from memlab._fit.fit import fit
from memlab._fit.sweep import sweep
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
from memlab._record.history import (
    _allocation_traceback as _allocation_traceback,
)
from memlab._record.history import (
    _dump_snapshot as _dump_snapshot,
)
from memlab._record.history import (
    _record_memory_history as _record_memory_history,
)
from memlab._record.history import (
    _snapshot as _snapshot,
)
from memlab._record.history import (
    dump_snapshot,
    record_memory_history,
    snapshot,
)
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._recording.commands import convert, export, report
from memlab._recording.recording import Recording, merge
from memlab._recording.recording import open as open
from memlab._recording.view import view
from memlab._report.peaks import CATEGORIES
from memlab._version import __version__ as __version__
from memlab.viz import _save_memory_usage as _save_memory_usage
from memlab.viz import _save_segment_usage as _save_segment_usage

def load_ipython_extension(ipython: object) -> None: ...

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
    "export",
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
    "survey",
    "sweep",
    "tune",
    "view",
]
