"""Whether there is a GPU, or the phantom device, without using one."""

from __future__ import annotations

import os
import sys


def gpu_present() -> bool:
    """Whether this process could use a CUDA device, without using one.

    True for a driver's device node, and for the phantom device.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    if under_phantom():
        return True
    nodes = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")
    return any(os.path.exists(node) for node in nodes)


def under_phantom() -> bool:
    """Whether this process runs on the phantom device."""
    return "libmemlab_phantom" in os.environ.get("LD_PRELOAD", "")


def gpus_seen() -> int | None:
    """How many GPUs torch sees; None: only CUDA's initialisation would tell."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.cuda.is_initialized():
        return torch.cuda.device_count()
    # torch's own count before it begins, which asks NVML; its fallback asks CUDA, after
    # which a forked child could not use CUDA.
    count = torch.cuda._device_count_nvml()
    return count if count > 0 else None


def check_gpu(index: int) -> None:
    """Raises ValueError if torch is known to see no GPU of this index."""
    count = gpus_seen()
    if count is not None and index >= count:
        raise ValueError(f"there is no cuda:{index}, torch sees {count}")
