"""MemProfiler's default hooks on modules: host memory before and after each forward
pass, and npp, the bytes saved by autograd so far, without parameters.

Owns the counts of one profiled call, and the current calls of each thread.  The
functions are found by their dotted names, take torch's arguments of hooks, and hold
nothing, so that a model with hooks can be copied and pickled.  Without a current
profiled call they do nothing, as on a copy of the model that outlives it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch

_PAGE = os.sysconf("SC_PAGESIZE")

_local = threading.local()
# Current calls of all threads, for autograd's own threads.
_under_way = []


class MemoryInfo(NamedTuple):
    """The memory of a process in bytes, with psutil's names."""

    rss: int
    vms: int
    shared: int
    text: int
    lib: int
    data: int
    dirty: int


def memory_info() -> MemoryInfo:
    """This process's memory, as psutil.Process().memory_info()."""
    with open("/proc/self/statm", "rb") as file:
        size, resident, *others = (int(part) * _PAGE for part in file.read().split())
    return MemoryInfo(resident, size, *others)


def host_memory() -> tuple[int, int]:
    """This process's resident and virtual memory in bytes, psutil's rss and vms."""
    return memory_info()[:2]


def _storages(tensor) -> Iterator[Any]:
    """The storages of the plain tensors in TENSOR."""
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            part = getattr(tensor, name)
            # From torch 2.15 on a DTensor has its mesh among its parts.
            if isinstance(part, torch.Tensor):
                yield from _storages(part)
    elif tensor.layout in (parts := _parts(torch)):
        for name in parts[tensor.layout]:
            yield from _storages(getattr(tensor, name)())
    else:
        yield tensor.untyped_storage()


def _parts(torch):
    """The methods that return a sparse tensor's dense tensors."""
    rows = "crow_indices", "col_indices", "values"
    columns = "ccol_indices", "row_indices", "values"
    return {
        torch.sparse_coo: ("_indices", "_values"),
        torch.sparse_csr: rows,
        torch.sparse_bsr: rows,
        torch.sparse_csc: columns,
        torch.sparse_bsc: columns,
    }


class Count:
    """The bytes that one profiled call of a function of MODULE saves for its backward
    pass.

    bytes: of the storages saved so far, each counted once and whole, because it stays
    alive as a whole; without those of parameters, even through a view.  figures: by
    module that ran, the attributes set by the hooks.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        parameters = getattr(module, "parameters", tuple)()
        self._skipped = {s._cdata for p in parameters for s in _storages(p)}
        # A weak reference reserves a storage's address, but not its memory.
        self._seen = {}
        self._lock = threading.RLock()
        self.bytes = 0
        self.figures = {}
        self.rss = host_memory()[0]
        self.beside = ()  # the list of its thread's current calls
        self.error = None  # of a hook, for the collector of the figures

    def add(self, tensor: torch.Tensor) -> None:
        """Counts the memory that TENSOR, which is saved, keeps alive."""
        from torch.multiprocessing.reductions import StorageWeakRef
        from torch.nn import Parameter

        if isinstance(tensor, Parameter) or isinstance(tensor._base, Parameter):
            return
        for storage in _storages(tensor):
            with self._lock:
                if storage._cdata in self._skipped or storage._cdata in self._seen:
                    continue
                self._seen[storage._cdata] = StorageWeakRef(storage)
                self.bytes += storage.nbytes()

    def reset(self) -> None:
        """Resets the counts."""
        with self._lock:
            self._seen.clear()
            self.bytes = 0
            self.figures.clear()

    def whole(self) -> dict[str, int]:
        """The figures of the call as if it were one forward pass."""
        rss = host_memory()[0]
        return {
            "npp_pre_forward": 0,
            "npp_post_forward": self.bytes,
            "npp_diff": self.bytes,
            "rss_pre_forward": self.rss,
            "rss_post_forward": rss,
            "rss_diff": rss - self.rss,
        }


def begin(count: Count) -> None:
    """COUNT's call begins in this thread, inside the thread's current calls."""
    if not hasattr(_local, "counts"):
        _local.counts = []
    count.beside = _local.counts
    count.beside.append(count)
    _under_way.append(count)


def end(count: Count) -> None:
    """COUNT's call ends, wherever it began; does nothing if it has ended."""
    for counts in (_under_way, count.beside):
        if count in counts:
            counts.remove(count)


def counts() -> list[Count]:
    """The counts of this thread's current calls, innermost last.

    In autograd's threads, which repeat a checkpoint's forward pass: that of the call
    that began last.
    """
    own = getattr(_local, "counts", None)
    if own:
        return own
    in_backward = _under_way and sys.modules["torch"]._C._current_graph_task_id() != -1
    return _under_way[-1:] if in_backward else []


def _set(module, figures):
    # torch.nn.Module's own way is for parameters, buffers and modules.
    module.__dict__.update(figures)


def _quiet(hook):
    """HOOK, made safe: it raises nothing into its forward pass."""

    @functools.wraps(hook)
    def quiet(module, *args, **kwargs):
        try:
            hook(module)
        except Exception as error:
            for count in tuple(_under_way):
                count.error = error

    return quiet


@_quiet
def _hook_npp_pre_forward(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    """Sets npp_pre_forward and rss_pre_forward of MODULE, in bytes."""
    import torch

    if torch.compiler.is_compiling():
        return
    rss = None
    for count in counts():
        rss = host_memory()[0] if rss is None else rss
        figures = count.figures.setdefault(module, {})
        figures.update(npp_pre_forward=count.bytes, rss_pre_forward=rss)
        _set(module, figures)


@_quiet
def _hook_npp_post_forward(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    """Sets npp_post_forward, npp_diff, rss_post_forward, rss_diff of MODULE, in bytes.

    rss_diff is the sum over the forward passes since the last reset, npp_diff that of
    the last one.
    """
    import torch

    if torch.compiler.is_compiling():
        return
    rss = None
    for count in counts():
        rss = host_memory()[0] if rss is None else rss
        figures = count.figures.get(module)
        if figures is None:
            # Its forward pass began before the call.
            continue
        figures.update(
            npp_post_forward=count.bytes,
            npp_diff=count.bytes - figures["npp_pre_forward"],
            rss_post_forward=rss,
            rss_diff=rss - figures["rss_pre_forward"] + figures.get("rss_diff", 0),
        )
        _set(module, figures)


def _reset_memory_hooks_state(model: torch.nn.Module, reset_attrs: list[str]) -> None:
    """Resets RESET_ATTRS of MODEL's modules, and the counts of the innermost call, to
    0.
    """
    for count in counts()[-1:]:
        count.reset()
    zeros = dict.fromkeys(reset_attrs, 0)
    for module in getattr(model, "modules", tuple)():
        _set(module, zeros)


def _npp_hook(x: torch.Tensor) -> torch.Tensor:
    """Counts X, which autograd saves, in this thread's current calls; returns X."""
    for count in counts():
        count.add(x)
    return x
