"""The product's capture of stacks, compiled into an extension module of its own
(tests/helpers/stackprobe.c), and what a stack should be."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FRAMES, OUTER_FRAMES = 256, 128  # ML_FRAMES_MAX, ML_FRAMES_OUTER


def build(folder, name, *flags):
    """The extension module NAME, compiled with FLAGS."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} not found")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip(f"no headers of this Python in {include}")
    product = "codes frames frames_check frames_public"
    core = "stack_cache stacks stacks_objects stacks_resolve origins linetable region thread_number base"
    core += " recording recording_validate events event_column event_slab interner"
    library = folder / f"{name}.so"
    subprocess.run(
        [
            *compiler,
            *"-std=c11 -O2 -Wall -Wextra -fPIC -shared -pthread".split(),
            *("-fvisibility=hidden", "-I", include, "-o", str(library)),
            *(f'-DPROBE_NAME="{name}"', f"-DPROBE_INIT=PyInit_{name}", *flags),
            str(ROOT / "tests/helpers/stackprobe.c"),
            *(str(ROOT / f"csrc/py/frames/{part}.c") for part in product.split()),
            *(f"-I{ROOT / folder}" for folder in ("csrc", "csrc/core", "csrc/py")),
            *(str(next((ROOT / "csrc/core").rglob(f"{part}.c"))) for part in core.split()),
        ],
        check=True,
    )
    spec = importlib.util.spec_from_file_location(name, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expected():
    """The caller's stack in the form of resolve(): innermost first."""
    frames = traceback.extract_stack(sys._getframe(1))
    return [(f.name, f.filename, f.lineno) for f in reversed(frames)]


def kept(want):
    """What is kept of the stack WANT."""
    if len(want) <= MAX_FRAMES:
        return want
    marker = (f"<{len(want) - MAX_FRAMES} frames left out>", "", 0)
    return [*want[: MAX_FRAMES - OUTER_FRAMES], marker, *want[-OUTER_FRAMES:]]


def check(probe, captured, want):
    """The stack captured on the line of WANT is WANT."""
    stack, flags = captured
    assert flags == 0
    got = probe.resolve(stack)
    want = kept(want)
    assert len(got) == len(want)
    assert got == want


def recurse(depth, function):
    if depth > 0:
        return recurse(depth - 1, function)
    return function()
