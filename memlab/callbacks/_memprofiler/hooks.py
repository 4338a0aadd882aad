"""MemProfiler's hooks: on modules, and on the tensors that autograd saves.

Owns where they are registered, and their complete removal.
"""

from __future__ import annotations

import sys

from memlab._errors import tell
from memlab.callbacks import npp_hooks
from memlab.callbacks._memprofiler import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from memlab.callbacks._memprofiler.config import MemProfilerCfg


class Hooks:
    """What MemProfiler does with hooks."""

    module: Any
    memprofiler_cfg: MemProfilerCfg
    saved_tensors_funcs: list[Callable]
    _state: Any
    _part: Callable

    def add_memprofiler_hooks(self) -> None:
        """Registers memory_hooks on the module and its submodules, and resets what they
        set; does nothing if they are registered.

        Each of these modules gets mem_info_handle, a function that returns the process's
        memory as psutil's memory_info() does, for hooks that read it.  Compiled submodules
        get no hooks inside, where they would break the graph.
        """
        state = self._state
        if state.hook_handles:
            return
        modules = list(compiled.outside(self.module))
        names = [*self.memprofiler_cfg.save_hook_attrs, "mem_info_handle"]
        for module in modules:
            new = [name for name in names if name not in vars(module)]
            state.attributes.append((module, new))
            vars(module).setdefault("mem_info_handle", npp_hooks.memory_info)
        for kind, method in (
            ("pre_forward_hooks", "register_forward_pre_hook"),
            ("post_forward_hooks", "register_forward_hook"),
        ):
            for hook in state.configured_hooks.get(kind, ()):
                handles = state.hook_handles.setdefault(hook, [])
                handles.extend(getattr(module, method)(hook) for module in modules)
        self.exec_reset_state_hooks()

    def remove_memprofiler_hooks(self) -> None:
        """Removes the hooks, and the attributes that they set on modules."""
        state = self._state
        for handles in state.hook_handles.values():
            for handle in handles:
                handle.remove()
        state.hook_handles.clear()
        for module, names in state.attributes:
            for name in names:
                vars(module).pop(name, None)
        state.attributes.clear()

    def exec_reset_state_hooks(self) -> None:
        """Calls the reset_state_hooks with the module and save_hook_attrs."""
        for hook in self._state.configured_hooks.get("reset_state_hooks", ()):
            hook(self.module, self.memprofiler_cfg.save_hook_attrs)

    def _enter_saved_tensors(self, stack, call):
        if call is None or not call.collecting:
            return
        if not self.memprofiler_cfg.enable_saved_tensors_hooks:
            return
        with self._part(
            "hooks of saved tensors", "enable_saved_tensors_hooks=False leaves them out"
        ) as on:
            if on:
                graph = sys.modules["torch"].autograd.graph
                pack, unpack = self.saved_tensors_funcs
                if pack is npp_hooks._npp_hook:
                    pack = self._packer(npp_hooks.counts())
                else:
                    pack, unpack = _safe_pair(pack, unpack)
                dynamo = sys.modules.get("torch._dynamo")
                if dynamo is not None:
                    # Compiled code calls it, and would otherwise compile it too.
                    pack = dynamo.disable(pack)
                stack.enter_context(graph.saved_tensors_hooks(pack, unpack))

    def _packer(self, counts):
        """_npp_hook for the calls of COUNTS, in any thread in which autograd saves."""
        counts = tuple(counts)
        part = (
            "the bytes that autograd saves",
            "enable_saved_tensors_hooks=False leaves them out",
        )

        def pack(tensor):
            try:
                for count in counts:
                    count.add(tensor)
            except Exception as error:
                with self._part(*part):
                    raise error
            return tensor

        return pack


class Safe:
    """HOOK of the program's own, which raises nothing into the training: its first
    exception is told, and it is then left out.
    """

    def __init__(self, hook: Callable) -> None:
        self.hook = hook
        self.failed = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the hook returns; None, as of a hook that changes nothing, if it raised."""
        if self.failed:
            return None
        try:
            return self.hook(*args, **kwargs)
        except Exception as error:
            self.failed = True
            name = getattr(self.hook, "__qualname__", None) or repr(self.hook)
            tell(
                f"MemProfiler leaves out the hook {name}, which raised "
                f"{type(error).__name__}: {error}; the training goes on"
            )
            return None


def safe(hook: Callable) -> Callable:
    """HOOK, made safe unless it is memlab's own, which is."""
    return hook if getattr(hook, "__module__", None) == npp_hooks.__name__ else Safe(hook)


class _Kept:
    """A tensor that a function to pack it failed for."""

    def __init__(self, tensor):
        self.tensor = tensor


def _safe_pair(pack, unpack):
    first = Safe(pack)

    def packed(tensor):
        found = first(tensor)
        return _Kept(tensor) if first.failed else found

    def unpacked(found):
        # What a function that does not raise has packed, it alone can unpack.
        return found.tensor if isinstance(found, _Kept) else unpack(found)

    return packed, unpacked
