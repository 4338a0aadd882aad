"""No type of memlab._core leaves references, memory, files or threads behind."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memlab import _core

PROGRAMS = Path(__file__).resolve().parents[1] / "isolated"

TESTS = {
    "Courtesy": "leak_courtesy.py",
    "Leaks": "leak_leaks.py",
    "Follower": "leak_follower.py",
    "LineProfiler": "leak_line_profiler.py",
    "MemReporter": "leak_mem_reporter.py",
    "MemorySnapshot": "leak_memory_snapshot.py",
    "Recording": "leak_recording.py",
    "Script": "leak_script.py",
}


def test_every_type_has_a_leak_test():
    types = {name for name, value in vars(_core).items() if isinstance(value, type)}
    assert types == set(TESTS)
    assert {path.name for path in PROGRAMS.glob("leak_*.py")} == set(TESTS.values())


@pytest.mark.parametrize("name", TESTS)
def test_nothing_is_left_behind(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / TESTS[name])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# What is left once a call, and the word for it.
LEFT = {
    "kept.append(object())": "blocks of Python's",
    "kept.append([])": "objects",
    "libc.malloc(1)": "of malloc's",
    # Four pages: the kernel counts a process's pages a little late.
    "libc.mmap(None, 16384, 3, 0x8022, -1, 0)": "bytes more",
    "os.open('/', 0)": "open files",
    "libc.realloc(libc.realloc(None, 64), 0)": None,
}


@pytest.mark.parametrize("call", LEFT)
def test_one_thing_left_in_each_call_is_seen(call):
    if "malloc" in call and not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library has no mallinfo2: malloc is not asked what is in use")
    if "object()" in call and os.environ.get("PYTHONMALLOC", "pymalloc") != "pymalloc":
        pytest.skip("PYTHONMALLOC: Python does not count its blocks")
    program = f"""
import ctypes, os, sys
sys.path.insert(0, {str(PROGRAMS)!r})
import leaks
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.mmap.restype = libc.realloc.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.realloc.argtypes = ctypes.c_void_p, ctypes.c_size_t
kept = []
def call():
    {call}
leaks.check(object, call, (300,))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode == 0) == (LEFT[call] is None), done.stderr
    assert (LEFT[call] or "") in done.stderr
