"""Gives back the process's CUDA context for a while, with all that CUDA holds.

Owns the refusals that only torch can decide, and NVML's figures before, meanwhile and
after. csrc/core/gpu/checkpoint.c makes the driver's checkpoint; Courtesy moves tensors.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from memlab import _core
from memlab._errors import Error

# The driver's patience for threads inside CUDA.
PATIENCE_MS = 10_000
# Time for a process that reads NVML to start.
READER_PATIENCE_S = 60

# NVML blocks every thread of a process without its context, so another process reads
# it.
_READER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from memlab import _core
print(json.dumps([_core.gpu_memory(name, int(sys.argv[2])) for name in sys.argv[3:]]))
"""


class Context:
    """This process's CUDA context, on its way to the driver and back.

    In this order: check(), give(), take(), settle(), and so on again.

    seconds: {"give", "take"}, the driver's time.  memory: NVML's figures "before",
    "during" and "after", as documented at Courtesy.context.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, dict[int, dict[str, int | None]]] = {}
        self.memory_reason: str | None = None
        self._names: dict[int, str] = {}

    @property
    def away(self) -> bool:
        """Whether the context is given and not yet taken back."""
        return _core.context_away()

    def report(self) -> dict:
        """All of the above, as documented at Courtesy.context."""
        return {
            "reason": self.reason,
            "seconds": dict(self.seconds),
            "memory": dict(self.memory),
            "memory_reason": self.memory_reason,
        }

    def check(self) -> bool:
        """Whether there is a context to give.  Raises memlab.Error if the driver or the
        process's state forbids it; nothing has changed then.
        """
        self.memory, self.seconds, self._names = {}, {}, {}
        self.memory_reason = None
        self.reason = _core.context_check()
        if self.reason is not None:
            return False
        torch = sys.modules.get("torch")
        if torch is not None:
            _refuse_communicators()
            _refuse_shared(torch)
        try:
            before = {i: _core.gpu_memory(i, 0) for i in range(_device_count(torch))}
        except Error as error:
            self.memory_reason = str(error)
            before = {}
        # Without devices that the process has not used.
        before = {i: figures for i, figures in before.items() if figures["own_bytes"] != 0}
        self._names = {i: name for i in before if (name := _core.gpu_name(i)) is not None}
        self.memory["before"] = before
        return True

    def give(self) -> None:
        """Gives the context back.  Raises memlab.Error; unless away, the context is
        then in place.
        """
        began = time.perf_counter()
        _core.context_give(PATIENCE_MS)
        self.seconds["give"] = time.perf_counter() - began
        self.memory["during"] = self._read_outside()

    def take(self) -> None:
        """Takes the context back.  Raises memlab.Error on failure; the call can be
        repeated.
        """
        began = time.perf_counter()
        _core.context_take()
        self.seconds["take"] = time.perf_counter() - began

    def settle(self) -> None:
        """Reads the process's memory again."""
        try:
            self.memory["after"] = {i: _core.gpu_memory(i, 0) for i in self._names}
        except Error as error:
            self.memory_reason = str(error)
            self.memory["after"] = {}

    def _read_outside(self) -> dict:
        if not self._names:
            return {}
        folder = str(Path(__file__).resolve().parents[2])
        try:
            read = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _READER, folder, str(os.getpid())]
                + list(self._names.values()),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=READER_PATIENCE_S,
                check=True,
            )
            found = json.loads(read.stdout)
        except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            self.memory_reason = f"another process could not ask NVML: {error}"
            return {}
        figures = dict(zip(self._names, found, strict=True))
        for index, after in figures.items():
            # NVML lists processes by ids of another namespace, so this process is never
            # found.
            if self.memory["before"][index]["own_bytes"] is None:
                after["own_bytes"] = after["others_bytes"] = None
        return figures


def _device_count(torch) -> int:
    return 0 if torch is None else torch.cuda.device_count()


def _refuse_communicators() -> None:
    """Refuses NCCL with other processes: their GPUs and this one hold parts of each
    other.
    """
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None or not distributed.is_initialized():
        return
    for group in list(distributed._world.pg_map):
        if group.size() > 1 and "nccl" in str(distributed.get_backend_config(group)):
            raise Error(
                "the CUDA context cannot be given back while NCCL connects this process "
                f"with {group.size() - 1} more: call "
                "torch.distributed.destroy_process_group() in all of them first"
            )


def _refuse_shared(torch) -> None:
    """Refuses GPU storages that torch.multiprocessing sent or received."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    count = 0
    for reference in [] if reductions is None else list(reductions.shared_cache.values()):
        storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
        count += storage is not None and storage.device.type == "cuda"
    if count:
        raise Error(
            f"the CUDA context cannot be given back while {count} storages of GPU memory "
            "are shared with other processes (torch.multiprocessing): delete the tensors "
            "that were sent or received first"
        )
