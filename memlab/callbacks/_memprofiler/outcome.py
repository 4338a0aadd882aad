"""What MemProfiler collected of CUDA's memory, and why it collected nothing of a function."""

from __future__ import annotations

import sys
from dataclasses import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab.callbacks._memprofiler.config import MemProfilerCfg
    from memlab.callbacks._memprofiler.profiler import MemProfInternalState


def cuda_figures() -> dict[str, Any]:
    """torch's statistics of the current device, and of other devices with memory."""
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():
        return {}
    current = cuda.current_device()
    figures = dict(cuda.memory_stats(current))
    for device in range(cuda.device_count()):
        if device != current:
            stats = cuda.memory_stats(device)
            if stats.get("reserved_bytes.all.peak"):
                figures.update((f"cuda:{device}.{k}", v) for k, v in stats.items())
    return figures


def not_collected(cfg: MemProfilerCfg, state: MemProfInternalState) -> str:
    """The functions of collect_funcs of which nothing was collected, and why; empty: none."""
    funcs, schedule = cfg.collect_funcs, cfg.schedule
    wanted = set().union(*(getattr(funcs, each.name) for each in fields(funcs)))
    calls = {name: count for (name, at), count in state.snap_indices.items() if at == "start"}
    reasons = []
    missing = sorted(name for name in wanted if not calls.get(name))
    if missing:
        ran = ", ".join(sorted(name for name in calls if calls[name])) or "none"
        reasons.append(
            f"no profiled function named {' or '.join(missing)} ran (profiled functions that "
            f"ran: {ran}); name one of these in collect_funcs, or decorate it with "
            "@memprofilable"
        )
    last = schedule.max_iter
    if last is not None and last <= schedule.warmup_iters:
        reasons.append(
            f"schedule.max_iter={last} is not above warmup_iters={schedule.warmup_iters}; give "
            "a higher max_iter"
        )
    else:
        few = sorted(n for n in wanted if 0 < calls.get(n, 0) <= schedule.warmup_iters)
        reasons.extend(
            f"{name} ran {calls[name]}x, and the first {schedule.warmup_iters} calls are not "
            "collected; give fewer schedule.warmup_iters"
            for name in few
        )
    return f"MemProfiler collected nothing of some: {'; '.join(reasons)}" if reasons else ""
