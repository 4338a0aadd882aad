"""Children of fork, and every way to end a process, while memlab records: of processes
that were not forked themselves, where that may count."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount
from preload import shared_library

from memlab import phantom

HERE = Path(__file__).resolve().parents[1]
PROGRAMS = HERE / "isolated"

EXITS = {
    "return": 0,
    "exit": 3,
    "exception": 1,
    "_exit": 5,
    "terminate": -signal.SIGTERM,
    "interrupt": -signal.SIGINT,
    "abort": -signal.SIGABRT,
    "exec": 7,
    "daemon_events": 0,
}


@pytest.mark.cuda
def test_forked_children_work_and_record_nothing(phantom_run):
    """DataLoader workers before and after CUDA, plain forks, forks beside threads."""
    phantom_run(PROGRAMS / "forks.py", warm=False)


@pytest.mark.cuda
def test_children_run_profiled_functions_whoever_had_the_allocators_lock(phantom_run):
    phantom_run(PROGRAMS / "line_forks.py", warm=False)


@pytest.mark.parametrize(
    "doing", ["operator", "region", pytest.param("phantom", marks=pytest.mark.cuda)]
)
def test_a_child_waits_for_no_lock_that_recording_made_another_thread_take(
    doing, tmp_path, torch
):
    library = shared_library(HERE / "helpers" / "held_lock.c", tmp_path / "held_lock.so")
    device = phantom.environment() if doing == "phantom" else {}
    preloaded = " ".join(filter(None, [str(library), device.get("LD_PRELOAD")]))
    done = subprocess.run(
        [sys.executable, PROGRAMS / "fork_beside_operator.py", doing],
        env={**os.environ, **device, "LD_PRELOAD": preloaded},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "the child's status: 0\n", done.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("kind", EXITS)
def test_the_exit_status_is_the_programs(phantom_run, kind):
    done = phantom_run(PROGRAMS / "exits.py", kind, "record", check=False, warm=False)
    assert done.returncode == EXITS[kind], done.stderr
    assert ("ValueError: the program's own" in done.stderr) == (kind == "exception")
    assert "memlab:" not in done.stderr


@pytest.mark.cuda
def test_daemon_threads_that_allocate_at_exit_end_as_without_memlab(phantom_run):
    """CPython before 3.14 ends such threads inside torch, which aborts the process."""
    alone = phantom_run(PROGRAMS / "exits.py", "daemon", check=False, warm=False)
    recorded = phantom_run(
        PROGRAMS / "exits.py", "daemon", "record", check=False, warm=False
    )
    assert recorded.returncode == alone.returncode, recorded.stderr
    # Which of the threads C++ speaks of, and how, is a race that both have.
    assert told(recorded.stderr) == told(alone.stderr)


def told(stderr):
    """STDERR without C++'s last words."""
    return re.sub(r"(?s)terminate called .*", "terminate called", stderr)


@pytest.mark.cuda
@pytest.mark.nightly
def test_every_end_is_the_same_as_without_memlab(phantom_run):
    """Twenty ways to end a process; status and stderr."""
    turns = amount("EXITS", 1)
    environment = {"PYTHONWARNINGS": "ignore"}
    done = phantom_run(
        PROGRAMS / "exit_matrix.py", turns, env=environment, timeout=4 * 3600
    )
    print(done.stdout)
