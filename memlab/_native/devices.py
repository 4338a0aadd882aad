"""Whether there is a GPU, or the phantom device, without using one."""

import os


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
