"""Whether programs can use CUDA here, possibly the phantom's."""

import functools
import importlib.util
import platform
import sys


@functools.cache
def has_gpu():
    """Whether programs find a CUDA device without the phantom's help."""
    from memlab._native import devices

    return devices.gpu_present()


@functools.cache
def why_no_torch():
    """The reason why torch cannot be used, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return None


@functools.cache
def why_no_cuda():
    """The reason why no program can use CUDA here, not even the phantom's, or None."""
    if why_no_torch():
        return why_no_torch()
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not a CUDA build"
    if has_gpu():
        return None
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "no GPU, and the phantom device needs Linux on x86-64"
    return None
