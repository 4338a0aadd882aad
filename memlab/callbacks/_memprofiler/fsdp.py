"""FSDP2's memory in the calls that MemProfiler collects.

Owns the choice of the tracked module and calls; fsdp_memory.py has the tracker.
"""

from __future__ import annotations

import contextlib

from memlab.callbacks._memprofiler import fsdp_memory
from memlab.callbacks._memprofiler.config import misconfiguration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import torch

    from memlab.callbacks._memprofiler.config import MemProfilerCfg


class FsdpMemory:
    """What MemProfiler does with FSDP2's tracker."""

    module: Any
    memprofiler_cfg: MemProfilerCfg
    fsdp_mem_tracker: Any
    fsdp_memory_stats: dict[tuple[str, int], dict[str, Any]]
    _state: Any
    _tracking: Any
    _part: Callable

    @property
    def fsdp_mem_tracker_root_module(self) -> torch.nn.Module | None:
        """The module whose FSDP2 memory is tracked; None without track_fsdp_mem.

        Raises MisconfigurationException if the configured one does not exist, and
        AssertionError if fully_shard was not applied to it.
        """
        cfg = self.memprofiler_cfg
        if not cfg.track_fsdp_mem:
            return None
        name = cfg.fsdp_mem_tracker_root_module
        try:
            root = self.module.get_submodule(name)
        except AttributeError:
            raise misconfiguration(
                f"Could not find the specified ``fsdp_mem_tracker_root_module``: "
                f"{name}. MemProfiler needs to attach to a module that has "
                "``fully_shard`` applied for FSDP2 memory tracking."
            ) from None
        from torch.distributed.fsdp import FSDPModule

        if not isinstance(root, FSDPModule):
            raise AssertionError(
                "MemProfiler requires the root FSDP module to have ``fully_shard`` "
                f"applied for FSDP2 memory tracking; {name or 'the profiled module'!r} "
                "has not. fsdp_mem_tracker_root_module names another."
            )
        return root

    def maybe_init_fsdp_mem_tracker(self) -> None:
        """Makes the tracker of FSDP2's memory, if track_fsdp_mem asks for one.

        Raises the errors of fsdp_mem_tracker_root_module.
        """
        root = self.fsdp_mem_tracker_root_module
        if root is None:
            return
        with self._part("FSDP memory", "torch's tracker is in 2.6 and newer"):
            optimizers = list(getattr(self.module.trainer, "optimizers", None) or ())
            self.fsdp_mem_tracker = fsdp_memory.new_tracker(
                root, optimizers[0] if optimizers else None, self._fsdp_failed
            )

    def _fsdp_failed(self, error):
        with self._part("FSDP memory", "the figures of this call are not complete"):
            raise error

    @contextlib.contextmanager
    def memprofile_fsdp_ctx(
        self, fn_name: str, track_inputs_target: tuple | None = None
    ) -> Iterator[None]:
        """Tracks FSDP2's memory, if there is a tracker and the call of FN_NAME is
        collected.

        track_inputs_target: its tensors count as inputs.  Of nested calls, the
        outermost is tracked.
        """
        call = tracked = None
        with contextlib.ExitStack() as stack:
            with self._part("FSDP memory", "track_fsdp_mem=False leaves it out") as on:
                call = self._begin(self._call(fn_name), fn_name, "start")
                tracked = on and self._enter_tracker(stack, call, track_inputs_target)
            try:
                yield
            finally:
                with self._part("FSDP memory", "what it saw before is written"):
                    stack.close()
                    self._leave_tracker(fn_name, call, tracked)

    def _enter_tracker(self, stack, call, inputs):
        funcs = self.memprofiler_cfg.collect_funcs.fsdp
        if self.fsdp_mem_tracker is None or call.name not in funcs:
            return False
        if not self._in_range(call) or not self._tracking.acquire(blocking=False):
            return False
        stack.callback(self._tracking.release)
        if inputs is not None:
            self.fsdp_mem_tracker.track_inputs(inputs)
        stack.enter_context(self.fsdp_mem_tracker)
        return True

    def _leave_tracker(self, name, call, tracked):
        self._begin(call, name, "end")
        if tracked:
            self.fsdp_memory_stats[(name, call.number)] = (
                self.fsdp_mem_tracker.figures()
            )
            self.fsdp_mem_tracker.reset_mod_stats()
        elif call.number is not None and self.done(call.number):
            if name not in (self._state.base_collect_func_set or ()):
                for context in "start", "end":
                    self.teardown_prof(name, context)
