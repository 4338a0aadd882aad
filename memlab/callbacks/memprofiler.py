"""MemProfiler in any program, with or without a trainer.

    from memlab.callbacks.memprofiler import MemProfiler, MemProfilerCfg, memprofilable

    class Loop:
        memprofiler_cfg = MemProfilerCfg(enabled=True)

        @memprofilable
        def training_step(self, batch): ...

    loop = Loop()
    loop.memprofiler = MemProfiler()
    loop.memprofiler.connect(loop)

memlab.callbacks.lightning has the same names, and what a LightningModule needs.
"""

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
from memlab.callbacks._memprofiler.profiler_hooks import ProfilerHooksMixin

__all__ = [
    "MemProfInternalState",
    "MemProfiler",
    "MemProfilerCfg",
    "MemProfilerFuncs",
    "MemProfilerHooks",
    "MemProfilerSchedule",
    "ProfilerHooksMixin",
    "memprofilable",
]
