"""Gives the GPU's memory to other programs for a while, and takes it back."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from memlab import _core
from memlab._errors import Error
from memlab._lend.context import Context
from memlab._native import bridge

_GIVEN_BACK = (
    "the CUDA context is given back, by another Courtesy: restore that one first"
)


class Courtesy(_core.Courtesy):
    """Moves all CUDA tensors to the host and back, in place.

        courtesy = memlab.Courtesy()
        courtesy.yield_memory()
        ...  # the GPU is free for other programs
        courtesy.restore()

    or ``with memlab.Courtesy():`` around that part; the memory is then taken back after
    an exception too.

    Meanwhile the tensors are CPU tensors, and changes to them return with them.
    Tensors that share memory keep sharing it.  Gradients, hooks, optimizer states and
    all other properties of tensors stay.  CPU tensors are not touched, and tensors made
    meanwhile stay on their device.  Tensors that autograd saved for backward passes
    move too; using them meanwhile is an error.  Call it while no other thread uses the
    GPU.

    `left` tells the memory that stays on the GPUs: that held by C++ alone, by memory
    pools and by other libraries.  cuBLAS's workspaces are given back for good; torch
    makes them again at the next product.  Afterwards tensors have other addresses.  A
    library that was given an address, by DLPack or otherwise, must not use it before it
    asks again after `restore()`.  A CUDA graph cannot ask, so memlab.Error is raised
    beforehand if one was captured and not reset.  Without CUDA, or before the program
    uses it, nothing happens.

    The CUDA context, some hundred MiB of code and tables, stays too, unless context is
    true.  Then the driver copies the rest to the host and gives everything back, so
    that the process has nothing on any GPU (on Linux, with NVIDIA's driver 570 or
    newer).  Until `restore()`, CUDA calls wait in every thread, and so do NVML's; a
    thread that waits with the GIL held stops the program.  If there are CUDA graphs,
    tensors do not move.  They leave with the context, keep their addresses, and cannot
    be used until `restore()`; `yielded` is false then.  memlab.Error is raised
    beforehand for an older driver, NCCL with other processes, and memory shared with
    them.  The driver refuses some other things only during the call, such as managed
    memory; then nothing changes.
    """

    def __init__(self, *, context: bool = False) -> None:
        super().__init__()
        self._context = Context() if context else None

    @property
    def context(self) -> dict[str, Any] | None:
        """The result for the CUDA context; None without context=True.

        reason: why there was none to give, or None.  seconds: the driver's time to
        "give" and to "take" it, floats.  memory: {"before", "during", "after": {index
        of the device: figures}}.  The figures are NVML's used_bytes and total_bytes of
        the device, own_bytes of this process and others_bytes; None if unknown.
        memory_reason: why figures are missing, or None.
        """
        return None if self._context is None else self._context.report()

    def yield_memory(self) -> None:
        """Gives back the memory of all CUDA tensors that Python has, after copying it
        to the host.

        Does nothing if the memory is already given back.  Raises memlab.Error, with
        nothing changed, if the host has no room for it, or the context cannot be given
        back.
        """
        if _core.context_away():
            if self._context is None:
                raise Error(_GIVEN_BACK)
            return
        was_yielded = self.yielded
        if was_yielded and self._context is None:
            return
        torch = _torch_with_gpus()
        if torch is not None:
            _refuse_capture(torch)
        has_context = self._context is not None and self._context.check()
        moves = torch is not None and not was_yielded
        moves = moves and not _has_graphs(self, torch, has_context)
        try:
            if moves:
                _core.use_storages(bridge.load()._storages)
                torch._C._cuda_clearCublasWorkspaces()
                self._yield_tensors(torch.Tensor, torch.UntypedStorage)
            if has_context:
                self._context.give()
        except BaseException:  # also Ctrl-C, which is told when the copies are done
            if not was_yielded:
                self.restore()
            raise

    def restore(self) -> None:
        """Takes memory again for the tensors that are left, on their GPUs.

        Does nothing if no memory is given back.  Raises memlab.Error if a GPU has no
        room; nothing is lost then, and the call can be repeated.
        """
        took = _core.context_away()
        if took:
            if self._context is None:
                if not self.yielded:
                    return
                raise Error(_GIVEN_BACK)
            try:
                self._context.take()
            finally:
                if not _core.context_away():
                    self._restore_tensors()
            self._context.settle()
        else:
            torch = _torch_with_gpus()
            if torch is not None and self.yielded:
                _refuse_capture(torch)
            self._restore_tensors()

    def __enter__(self) -> Courtesy:
        self.yield_memory()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.restore()


def _torch_with_gpus() -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _refuse_capture(torch: Any) -> None:
    if torch.cuda.is_current_stream_capturing():
        raise Error(
            "memory cannot be moved while a CUDA graph is being captured: end the capture "
            "first"
        )


def _has_graphs(courtesy: Courtesy, torch: Any, has_context: bool) -> bool:
    """Whether there are CUDA graphs, which hold addresses of tensors."""
    count = courtesy._count_graphs(torch.cuda.CUDAGraph)
    if count and not has_context:
        raise Error(
            f"{count} CUDA graphs hold addresses of tensors, which restore() would change: "
            "reset() them first and capture again afterwards, or use "
            "Courtesy(context=True), which keeps addresses"
        )
    return count > 0
