"""No type of memlab._core leaves references, memory, files or threads behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from memlab import _core

PROGRAMS = Path(__file__).resolve().parent / "isolated"

TESTS = {
    "LineProfiler": "leak_line_profiler.py",
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
