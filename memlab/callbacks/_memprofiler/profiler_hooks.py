"""ProfilerHooksMixin: lets a module in a Trainer profile itself.

Owns the way from the Trainer's hooks of modules to a MemProfiler.  Imports no trainer:
the next base class may lack these hooks.
"""

from __future__ import annotations

from typing import Any

from memlab.callbacks._memprofiler.config import MemProfilerCfg
from memlab.callbacks._memprofiler.profiler import MemProfiler


class ProfilerHooksMixin:
    """What makes a LightningModule profile itself, before it among the bases.

        class Model(ProfilerHooksMixin, LightningModule): ...

    memprofiler_cfg: the configuration; None, or one that is not enabled, profiles
    nothing.  Further arguments are those of the next base.  Hooks of Trainer that Model
    overrides must call super()'s.  Raises what MemProfiler.connect() raises.
    """

    def __init__(
        self, memprofiler_cfg: MemProfilerCfg | None = None, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.memprofiler = None
        self.memprofiler_cfg = memprofiler_cfg
        if memprofiler_cfg and memprofiler_cfg.enabled:
            profiler = MemProfiler()
            profiler.connect(self)
            self.memprofiler = profiler

    def setup(self, stage: str) -> None:
        """Makes the folder of the files."""
        _next(super(), "setup", stage)
        if self.memprofiler:
            self.memprofiler.init_memprof_log_dir()
            self.memprofiler._start_history()

    def on_train_start(self) -> None:
        """Makes the tracker of FSDP2's memory, and the folder where setup() did not."""
        if self.memprofiler:
            if self.memprofiler.memprof_log_dir is None:
                self.memprofiler.init_memprof_log_dir()
            self.memprofiler.maybe_init_fsdp_mem_tracker()
        _next(super(), "on_train_start")

    def on_train_end(self) -> None:
        """Writes the files, and ends the recording."""
        if self.memprofiler:
            self.memprofiler._finish()
        _next(super(), "on_train_end")

    def teardown(self, stage: str) -> None:
        """Writes figures from after the training, as of validation_step, and tells what
        was not collected.
        """
        if self.memprofiler:
            self.memprofiler._finish(last=stage == "fit")
        _next(super(), "teardown", stage)

    @property
    def cuda_allocator_history(self) -> bool:
        """Whether recordings are written."""
        return bool(self.memprofiler and self.memprofiler_cfg.cuda_allocator_history)

    @property
    def memprofiler(self) -> MemProfiler | None:
        """The profiler; None: nothing is profiled.  Once set, it stays."""
        return getattr(self, "_memprofiler", None)

    @memprofiler.setter
    def memprofiler(self, memprofiler: MemProfiler | None) -> None:
        if not getattr(self, "_memprofiler", None):
            self._memprofiler = memprofiler


def _next(bases, name, *args):
    """Calls the hook NAME of the next base class, if it has that."""
    hook = getattr(bases, name, None)
    if hook is not None:
        hook(*args)
