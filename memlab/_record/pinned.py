"""Pinned host memory in snapshots: torch's recorder of it, switched and read."""

from __future__ import annotations

import inspect

from memlab._errors import Error
from memlab._native import bridge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CONTEXTS = (None, "state", "alloc", "all")
_KEYS = "host_segments", "host_traces"


class Pinned:
    """The recorder of pinned memory is torch's, one a process.  So where the program
    has switched it on itself, it is read only, and left on at the end."""

    def __init__(self) -> None:
        self.recording = False
        self._ours = False

    def start(self, context: str | None, native: bool, max_entries: int, clear: bool) -> None:
        """Records from now on; later calls change how.  Raises memlab.Error before torch
        2.13."""
        _check()
        torch_bridge = bridge.load()
        if self._ours or not torch_bridge.pinned_recording():
            self._ours = True
            torch_bridge.record_pinned(
                True, _CONTEXTS.index(context), native, max_entries, clear
            )
        self.recording = True

    def stop(self) -> None:
        if self._ours:
            bridge.load().record_pinned(False, 0, False, 0, False)
        self.recording = self._ours = False

    def lists(self) -> dict[str, Any]:
        """torch's host_segments and host_traces; nothing if nothing is recorded."""
        if not self.recording:
            return {}
        import torch

        taken = torch._C._cuda_memorySnapshot(None)  # type: ignore[arg-type]
        return {key: taken[key] for key in _KEYS}


def _check():
    import torch

    record = getattr(torch.cuda.memory, "_record_memory_history_impl", None)
    parameters = inspect.signature(record).parameters if record else ()
    if "record_pinned_host_memory" not in parameters:
        raise Error(
            f"torch {torch.__version__} does not record pinned host memory: leave out "
            "record_pinned_host_memory, or use torch 2.13 or newer"
        )
