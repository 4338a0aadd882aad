"""torch.cuda.memory's recording functions on memlab's recorder; only the import
changes.
"""

from __future__ import annotations

import inspect
import os
import sys

from memlab import _core
from memlab._errors import Error
from memlab._native import linemaps, sources
from memlab._record import annotations as _annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from memlab._core import _Path

# The one recording of these functions, like torch's.
_history = _core.MemorySnapshot()


def record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all", *args: Any, **kwargs: Any
) -> None:
    """Starts, changes or stops (enabled=None) the recording that snapshot() reads.

    Arguments as in torch.cuda.memory._record_memory_history, with its older signature
    (a bool). Differences: stacks is "python" unless "all" is requested, and an index in
    device records only that device.  max_entries counts events per device.  A later
    call keeps the events so far unless clear_history is true.

    Raises memlab.Error (a RuntimeError, with torch's words) for an invalid value, and
    for skip_actions, compile_context and global_record_annotations, which only torch
    has.  As in torch, it also raises without a GPU: MemorySnapshot(source="cpu")
    records the host's memory.
    """
    if isinstance(enabled, bool):
        _record_legacy(enabled, *args, **kwargs)
    else:
        _record(enabled, *args, **kwargs)


def _record(
    enabled: Literal["state", "all"] | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "python",
    max_entries: int = sys.maxsize,
    device: object = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: object = None,
) -> None:
    if enabled not in (None, "state", "all"):
        raise Error("expected state to be 'state', 'all', or None")
    if context not in (None, "state", "alloc", "all"):
        raise Error("expected context to be 'state', 'alloc', 'all', or None")
    if stacks not in ("python", "all"):
        raise Error("expected stacks to be 'python', or 'all'")
    for name, value in (
        ("compile_context", compile_context),
        ("global_record_annotations", global_record_annotations),
        ("skip_actions", skip_actions),
    ):
        if value:
            raise Error(
                f"{name} is not supported; use torch.cuda.memory._record_memory_history"
            )
    if enabled is None:
        _history._end()
        _annotations.stop()
        return
    sources.ensure("cuda")
    options = {
        # torch keeps one entry if none are requested.
        "max_entries": 1 if max_entries == 0 else max_entries,
        "context": context,
        "native": stacks == "all",
        "events": enabled == "all",
        "device": -1 if device is None else sources.parse_device(device)[1],
    }
    if not _history.recording:
        _history._begin("cuda", **options)
        _annotations.start()
    else:
        _history._configure("cuda", **options)
        if clear_history:
            _history._clear()


def _record_legacy(
    enabled,
    record_context=True,
    trace_alloc_max_entries=1,
    trace_alloc_record_context=False,
    device=None,
    record_context_cpp=False,
    clear_history=False,
    compile_context=False,
    global_record_annotations=False,
):
    context = "state" if record_context else None
    _record(
        "all" if enabled else None,
        "alloc" if trace_alloc_record_context else context,
        "all" if record_context_cpp else "python",
        trace_alloc_max_entries,
        device,
        clear_history,
        compile_context,
        global_record_annotations,
    )


def _record_memory_history(enabled="all", *args, **kwargs):
    """record_memory_history with torch's own default: stacks="all", C++ frames too."""
    if not isinstance(enabled, bool) and len(args) < 2:
        kwargs.setdefault("stacks", "all")
    record_memory_history(enabled, *args, **kwargs)


record_memory_history.__signature__ = inspect.signature(_record)
_record_memory_history.__signature__ = inspect.signature(_record).replace(
    parameters=[
        p.replace(default="all") if p.name == "stacks" else p
        for p in inspect.signature(_record).parameters.values()
    ]
)


def _recording():
    """The recording behind snapshot(); without one, the memory now."""
    linemaps.take()
    if _history.recording:
        _core.sample(False)
        return _history._freeze(sources.dialect_keys())
    sources.ensure("cuda")
    once = _core.MemorySnapshot()
    once._begin(
        "cuda", max_entries=1, context=None, native=False, events=False, device=-1
    )
    try:
        return once._freeze(sources.dialect_keys())
    finally:
        once._end()


def snapshot(device: object = None) -> dict[str, Any]:
    """The memory now and the recorded events, in the form of
    torch.cuda.memory._snapshot().

    Sizes are in bytes, times in microseconds.  device: an index, or another of torch's
    ways to name a device, limits the result to that device.  Without a recording there
    are no events.  Raises memlab.Error if the memory cannot be read, as without a GPU;
    ValueError for an invalid device.
    """
    only = -1 if device is None else sources.parse_device(device)[1]
    taken = _recording().to_dict()
    if only >= 0:
        taken["segments"] = [s for s in taken["segments"] if s["device"] == only]
        traces = taken["device_traces"]
        taken["device_traces"] = [t if i == only else [] for i, t in enumerate(traces)]
    return taken


def _tell_owners():
    import torch

    _core.name_modules(torch.nn.Module)
    _core.tag_owners(_history, torch.Tensor, torch.nn.Module, torch.optim.Optimizer)


def dump_snapshot(
    filename: _Path = "dump_snapshot.pickle", *, extras: bool = False
) -> None:
    """Writes snapshot() as a pickle that torch's tools and viewer read.

    extras: adds memlab's own facts under the key "memlab", which torch's tools ignore:
    current owners of memory, allocations of backward passes, modules, notes.  With
    them, memlab report need not estimate these.

    The file appears whole or not at all.  Raises memlab.Error or OSError.
    """
    if extras:
        _tell_owners()
    _recording().write_pickle(os.fspath(filename), bool(extras))
