"""Whether programs can use CUDA here, possibly the phantom's."""

import functools
import importlib.metadata
import importlib.util
import platform
import re
import sys
from pathlib import Path


@functools.cache
def has_gpu():
    """Whether programs find a CUDA device without the phantom's help."""
    from memlab._native import devices

    return devices.gpu_present()


def why_phantoms(variables):
    """The reason why no program can have VARIABLES of the environment here, or None."""
    if has_gpu() and any(name.startswith("MEMLAB_PHANTOM_") for name in variables):
        return "sets the phantom's devices or memory, and here is a GPU"
    return None


@functools.cache
def why_no_torch():
    """The reason why torch cannot be used, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return None


#: The torch that ran on the H200 whose figures tests compare with.
MEASURED = "2.11.0"


@functools.cache
def torch_since(*version):
    """Whether torch is VERSION, as in (2, 15), or newer; false without torch."""
    if why_no_torch():
        return False
    numbers = importlib.metadata.version("torch").split(".")[: len(version)]
    return tuple(map(int, numbers)) >= version


#: Keeps cuBLAS's workspaces, as torch does by itself up to 2.14: from 2.15 on a program has
#: them for each product only.  For figures worked out by hand.
KEEPS_WORKSPACES = {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}


@functools.cache
def why_not_measured():
    """The reason why nothing here can be compared with the H200's figures, or None."""
    if why_no_torch():
        return why_no_torch()
    version = importlib.metadata.version("torch").partition("+")[0]
    return None if version == MEASURED else f"measured with torch {MEASURED}, not {version}"


@functools.cache
def why_not_shown():
    """The reason why README and the pages show other figures than are seen here, or None."""
    if why_no_torch():
        return why_no_torch()
    makefile = Path(__file__).resolve().parents[2] / "Makefile"
    pinned = re.search(r"^TORCH \?= torch==(\S+)$", makefile.read_text(), re.M)[1]
    version = importlib.metadata.version("torch").partition("+")[0]
    return None if version == pinned else f"shown with torch {pinned}, not {version}"


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
