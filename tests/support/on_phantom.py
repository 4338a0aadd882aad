"""Programs on the phantom device."""

import functools
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import warm

from memlab import phantom

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"


@functools.cache
def why_not():
    """Why no program can run on the phantom here, or None."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the phantom device needs Linux on x86-64"
    if not phantom.available():
        return f"{phantom.LIBRARY} is not built"
    return None


@functools.cache
def why_no_torch():
    """Why torch cannot use the phantom here, or None."""
    if why_not() or importlib.util.find_spec("torch") is None:
        return why_not() or "torch is not installed"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not a CUDA build"
    return None


needs_library = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
needs_torch = pytest.mark.skipif(why_no_torch() is not None, reason=str(why_no_torch()))


def run(program, quiet=True, env=None, arguments=(), forked=False, **options):
    """Runs Python source, or a file, on the phantom; the CompletedProcess.  FORKED: of a
    process on the phantom that has imported torch."""
    variables = {
        key: value
        for key, value in os.environ.items()
        if key not in ("CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "LD_PRELOAD")
    }
    variables.update(phantom.environment(**options))
    variables["MEMLAB_PHANTOM_QUIET"] = "1" if quiet else "0"
    variables.update(env or {})
    if forked:
        return warm.run(program, *arguments, env=variables)
    source = [str(program)] if isinstance(program, Path) else ["-c", program]
    return subprocess.run(
        [sys.executable, *source, *arguments],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def output(program, **options):
    """What a program that must succeed prints."""
    done = run(program, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def command(*arguments):
    """The command of the phantom device: the CompletedProcess."""
    return subprocess.run(
        [sys.executable, "-m", "memlab.phantom", *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )


def installed(folder):
    """The folder to put first in PYTHONPATH so that Python reads memlab.pth, as it does where
    memlab is installed; it is made in FOLDER."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(ROOT)!r})\n")
    return f"{hook}{os.pathsep}{ROOT}"
