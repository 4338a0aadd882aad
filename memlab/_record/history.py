"""torch.cuda.memory's recording functions on memlab's recorder; only the import
changes.
"""

from __future__ import annotations

import inspect
import os
import pickle
import sys

from memlab import _core
from memlab._errors import Error
from memlab._native import bridge, linemaps, sources
from memlab._record import annotations as _annotations
from memlab._record.pinned import Pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from memlab._core import _Path

# The one recording of these functions, like torch's, and the actions that its readers do
# not get.
_history = _core.MemorySnapshot()
_options: dict[str, Any] = {}
_skipped: list[str] = []
_pinned = Pinned()


def record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all", *args: Any, **kwargs: Any
) -> None:
    """Starts, changes or stops (enabled=None) the recording that snapshot() reads.

    Arguments as in torch.cuda.memory._record_memory_history, with its older signature
    (a bool). Differences: stacks is "python" unless "all" is requested, and an index in
    device records only that device.  max_entries counts events per device, without those
    of skip_actions, which are left out of what is read; where more than 64 of these (and a
    million) lie between, fewer are kept.  A later call keeps the events so far unless
    clear_history is true.  Annotations of all threads are recorded, whatever
    global_record_annotations says.  record_pinned_host_memory switches torch's own recorder
    of pinned memory, with torch's stacks; where the program has it on already, it is read.

    Raises memlab.Error (a RuntimeError, with torch's words) for a bad value; for
    record_pinned_host_memory before torch 2.13; and, as torch does, where there is no GPU:
    MemorySnapshot(source="cpu") records the host's memory.
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
    skip_actions: Sequence[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    if enabled not in (None, "state", "all"):
        raise Error("expected state to be 'state', 'all', or None")
    if context not in (None, "state", "alloc", "all"):
        raise Error("expected context to be 'state', 'alloc', 'all', or None")
    if stacks not in ("python", "all"):
        raise Error("expected stacks to be 'python', or 'all'")
    skipped = _checked_actions(skip_actions)
    if enabled is None:
        if record_pinned_host_memory:
            raise Error(
                "record_pinned_host_memory requires memory history recording to be enabled"
            )
        _stop()
        return
    sources.ensure("cuda")
    # torch keeps one entry if none are requested.
    max_entries = 1 if max_entries == 0 else max_entries
    if record_pinned_host_memory:
        _pinned.start(
            context, stacks == "all", max_entries if enabled == "all" else 1, clear_history
        )
    else:
        _pinned.stop()
    if not record_cuda:
        _stop_cuda()
        return
    if compile_context:
        bridge.load().watch_compiled(True)
    options = {
        "max_entries": max_entries,
        "context": context,
        "native": stacks == "all",
        "events": enabled == "all",
        "device": -1 if device is None else sources.parse_device(device)[1],
        "skipped": skipped,
    }
    _options.update(options)
    if not _history.recording:
        _history._begin("cuda", **options)
        _annotations.start()
    else:
        _history._configure("cuda", **options)
        if clear_history:
            _history._clear()
    _skipped[:] = skipped


def _stop():
    _pinned.stop()
    _stop_cuda()


def _stop_cuda():
    if _history.recording:
        bridge.load().watch_compiled(False)
    _history._end()
    _annotations.stop()


def _checked_actions(actions):
    if actions is None:
        return []
    if isinstance(actions, str) or not all(isinstance(name, str) for name in actions):
        raise TypeError(
            f"skip_actions must be a list of actions, as ['free_requested'], not {actions!r}"
        )
    for name in actions:
        if name not in _actions():
            raise Error(f"Unknown TraceEntry action: {name}")
    return list(actions)


def _actions():
    """The actions that torch has names for."""
    return [name for name in _core.COLUMN_TEXTS["action"] if name != "other"]


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
    skip_actions=None,
    record_pinned_host_memory=False,
    record_cuda=True,
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
        skip_actions,
        record_pinned_host_memory,
        record_cuda,
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
    return _memory_now()


def _memory_now():
    """The memory now, with the stacks that the recording has captured, without its events.

    A window of its own, which is empty: what is recorded is not read.
    """
    sources.ensure("cuda")
    captured = ("context", "native", "device") if _history.recording else ()
    options = {"context": None, "native": False, "device": -1}
    options.update((name, _options[name]) for name in captured)
    once = _core.MemorySnapshot()
    once._begin("cuda", max_entries=1, events=False, **options)
    try:
        return once._freeze(sources.dialect_keys())
    finally:
        once._end()


def snapshot(
    device: object = None,
    augment_with_fx_traces: bool = False,
    *,
    include_traces: bool = True,
) -> dict[str, Any]:
    """The memory now and the recorded events, in the form of
    torch.cuda.memory._snapshot().

    Sizes are in bytes, times in microseconds.  device: an index, or another of torch's
    ways to name a device, limits the result to that device.  include_traces: False leaves the
    events out, which then need not be read: of 100,000 that takes a hundredth of the time, and
    blocks have their stacks all the same.  augment_with_fx_traces: torch
    adds to frames of code that FX generated which node they are of.  Without a recording
    there are no events.  Raises memlab.Error if the memory cannot be read, as without a
    GPU, and for augment_with_fx_traces if this torch has no such; ValueError for an invalid
    device.
    """
    only = -1 if device is None else sources.parse_device(device)[1]
    if include_traces:
        taken = {**_recording().to_dict(_skipped), **_pinned.lists()}
    else:
        taken = {**_memory_now().to_dict(), **_pinned.lists()}
        if "host_traces" in taken:
            taken["host_traces"] = []
    if only >= 0:
        taken["segments"] = [s for s in taken["segments"] if s["device"] == only]
        traces = taken["device_traces"]
        taken["device_traces"] = [t if i == only else [] for i, t in enumerate(traces)]
    return _augmented(taken) if augment_with_fx_traces else taken


def _augmented(taken):
    try:
        from torch._utils import _augment_memory_snapshot_stack_traces as augment
    except ImportError:
        raise Error("this torch has no augment_with_fx_traces: leave it out") from None
    return augment(taken)


def _tell_owners():
    import torch

    _core.name_modules(torch.nn.Module)
    _core.tag_owners(_history, torch.Tensor, torch.nn.Module, torch.optim.Optimizer)


def dump_snapshot(
    filename: _Path = "dump_snapshot.pickle",
    augment_with_fx_traces: bool = False,
    *,
    extras: bool = False,
) -> None:
    """Writes snapshot() as a pickle that torch's tools and viewer read.

    augment_with_fx_traces: as of snapshot().  extras: adds memlab's own facts under the key
    "memlab", which torch's tools ignore: current owners of memory, allocations of backward
    passes, modules, notes.  With them, memlab report need not estimate these; they need all
    events, those of skip_actions too, and are without pinned memory.

    The file appears whole or not at all.  Raises memlab.Error or OSError; ValueError for
    both options at once.
    """
    if augment_with_fx_traces and extras:
        raise ValueError("augment_with_fx_traces and extras do not go together; give one")
    if augment_with_fx_traces or (_pinned.recording and not extras):
        taken = snapshot(augment_with_fx_traces=augment_with_fx_traces)
        _core.write_file(os.fspath(filename), pickle.dumps(taken, protocol=4))
        return
    if extras:
        _tell_owners()
    skipped = [] if extras else _skipped
    _recording().write_pickle(os.fspath(filename), bool(extras), skipped)


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack of the allocation at the address DATA_PTR, the innermost frame first, each
    with `filename`, `line` and `name`; as torch.cuda.memory._allocation_traceback().

    None: the address is not the beginning of memory in use, nothing is recorded, or no stack
    was captured.
    """
    if not _history.recording:
        return None
    taken = _memory_now().to_dict()
    found = (
        block["frames"]
        for segment in taken["segments"]
        for block in segment["blocks"]
        if block["address"] == data_ptr and block["state"] == "active_allocated"
    )
    return next(found, None) or None


# torch's own names.
_snapshot = snapshot
_dump_snapshot = dump_snapshot
