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
The commands          report, view, diff, survey, convert, export, explain, replay, tune,
                      fit, sweep
While it trains       leaks, holders, MemReporter, ledger, stats, metrics, MemoryMonitor
Line by line          profile, LineProfiler, and %mlrun in a notebook
Lend the GPU          Courtesy
In a trainer          memlab.callbacks

A failure is a memlab.Error, whose text says what to do.  Sizes are in bytes and times in what
their key says, _us or _ns, as ints.  Importing memlab imports no torch, touches no GPU and
prints nothing.
"""

from importlib import import_module as _import_module

# Here, so that an interpreter that the core refuses hears of it at once.
from memlab import _core as _core
from memlab._errors import Error, SnapshotError
from memlab._version import __version__ as __version__

# Which file has a name.  It is read when the name is first used, so that a program that
# imports memlab waits only for what it uses.  __init__.pyi says the same to checkers of types.
_HOMES = {
    "CATEGORIES": "_report.peaks",
    "Courtesy": "_lend.courtesy",
    "Holder": "_objects.holders",
    "LineProfiler": "_lines.lines",
    "MemReporter": "_objects.mem_reporter",
    "MemoryMonitor": "_monitor.metrics",
    "MemorySnapshot": "_record.memory_snapshot",
    "Recording": "_recording.recording",
    "Table": "_export.table",
    "backends": "_native.backends",
    "clear_global_line_profiler": "_lines.profile",
    "convert": "_recording.commands",
    "diff": "_compare.diff",
    "dump_snapshot": "_record.history",
    "explain": "_lab.explain",
    "export": "_recording.commands",
    "fit": "_fit.fit",
    "holders": "_objects.holders",
    "leaks": "_objects.leaks",
    "ledger": "_native.sources",
    "load": "_files.load",
    "mark": "_record.annotations",
    "merge": "_recording.recording",
    "metrics": "_monitor.metrics",
    "open": "_recording.recording",
    "phase": "_record.annotations",
    "profile": "_lines.profile",
    "profile_every": "_lines.profile",
    "record_memory_history": "_record.history",
    "replay": "_lab.replay",
    "report": "_recording.commands",
    "set_target_gpu": "_lines.profile",
    "snapshot": "_record.history",
    "stats": "_native.sources",
    "step": "_record.annotations",
    "survey": "_compare.survey",
    "sweep": "_fit.sweep",
    "tune": "_lab.tune",
    "view": "_recording.view",
    # torch's own names, so that a script changes one import.
    "_allocation_traceback": "_record.history",
    "_dump_snapshot": "_record.history",
    "_record_memory_history": "_record.history",
    "_save_memory_usage": "viz",
    "_save_segment_usage": "viz",
    "_snapshot": "_record.history",
}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_import_module(f"memlab.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__():
    return [*globals(), *_HOMES]


def load_ipython_extension(ipython: object) -> None:
    """Called by `%load_ext memlab`: adds %mlrun, %%mlrun and %memlab."""
    from memlab._notebook.ipython import MemlabMagics

    ipython.register_magics(MemlabMagics)


# Without `open`, which would hide the builtin where `*` is imported.
__all__ = [
    "Error",
    "SnapshotError",
    "load_ipython_extension",
    *(name for name in _HOMES if not name.startswith("_") and name != "open"),
]
