"""Which sources of memory events are available here, and why others are not.

Nothing here initialises CUDA, compiles, or imports torch.
"""

from __future__ import annotations

import os
from pathlib import Path

from memlab._native import bridge, devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Backend


def _phantom_path():
    path = Path(__file__).resolve().parents[1] / "libmemlab_phantom.so"
    return path if path.exists() else None


def _cuda_device_reason():
    """Why CUDA cannot work here, or None; without using the driver."""
    if devices.gpu_present():
        return None
    return "no GPU on this machine; memlab phantom runs a program without one"


def _bridge_state(torch_build):
    """(usable, how) of the bridge for this torch; builds nothing."""
    if os.environ.get("MEMLAB_TORCH") == "0":
        return False, "switched off by MEMLAB_TORCH=0"
    key = bridge.bridge_key(torch_build)
    for path in bridge.built_paths(key):
        if path.exists():
            return True, f"bridge built for torch {torch_build.version}"
    if bridge.find_compiler() is None:
        return False, (
            f"no bridge for torch {torch_build.version} and no C++ compiler to build "
            "it: install g++ or clang++"
        )
    if torch_build.cuda and not bridge.cuda_include_dirs(torch_build.root):
        return False, (
            f"no bridge for torch {torch_build.version} and no CUDA headers to build "
            "it: set CUDA_HOME"
        )
    return True, f"bridge for torch {torch_build.version} is built at first use"


def backends() -> dict[str, Backend]:
    """Which sources of memory events are available, and why others are not.

    Returns a dict of "cuda", "cpu", "script" and "phantom".  Each is a dict with
    "available" (bool) and "reason" (str: how it works, or what is missing and what to
    do); "cuda" and "cpu" also have "torch" (version, str or None).  Initialises no
    CUDA, compiles nothing, imports no torch.
    """
    torch_build = bridge.find_torch()
    if torch_build is None:
        absent = {
            "available": False,
            "reason": "torch is not installed: pip install torch",
            "torch": None,
        }
        cuda, cpu = dict(absent), dict(absent)
    else:
        usable, how = _bridge_state(torch_build)
        cpu = {"available": usable, "reason": how, "torch": torch_build.version}
        cuda = dict(cpu)
        if not torch_build.cuda:
            cuda["available"] = False
            cuda["reason"] = (
                f"torch {torch_build.version} is built without CUDA: install a CUDA "
                "build of torch"
            )
        elif usable:
            missing = _cuda_device_reason()
            if missing is not None:
                cuda["available"] = False
                cuda["reason"] = missing
    phantom = _phantom_path()
    return {
        "cuda": cuda,
        "cpu": cpu,
        "script": {"available": True, "reason": "built in, for tests and examples"},
        "phantom": {
            "available": phantom is not None,
            "reason": (
                "a stand-in for a GPU: memlab phantom program args..."
                if phantom is not None
                else "libmemlab_phantom.so is not built: reinstall memlab on Linux with "
                "a C compiler"
            ),
        },
    }
