"""memlab top: what a running job has allocated, read from its file alone."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from test_answers import check

from memlab import _answers, _cli, _core, _top
from memlab._errors import Error, SnapshotError

MIB = 1 << 20
BASE = 1 << 40

# Takes a command a line: "alloc N MIB" and "free N", of blocks by number, "step", "end".
JOB = """
import sys
import memlab
from memlab import _core

script = _core.Script()
script.emit("segment_alloc", 1 << 40, 1 << 30)
snapshot = memlab.MemorySnapshot(source="script", file=sys.argv[1]).start()
sizes, place = {}, {}
next_place = 1 << 40
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "alloc":
        number, mib = rest
        place[number], sizes[number] = next_place, int(mib) << 20
        next_place += sizes[number]
        script.emit("alloc", place[number], sizes[number])
    elif word == "free":
        for action in ("free_requested", "free_completed"):
            script.emit(action, place[rest[0]], sizes[rest[0]])
    elif word == "many":
        exec("\\n" * int(rest[0]) + "script.emit('alloc', next_place, 1 << 20)")
        next_place += 1 << 20
    elif word == "step":
        _core.note_step()
    elif word == "end":
        snapshot.stop()
    print("done", flush=True)
"""


class Job:
    """A process that records what it is told to do."""

    def __init__(self, folder, name="job.mlab"):
        self.file = str(folder / name)
        program = folder / "job.py"
        program.write_text(JOB)
        self.process = subprocess.Popen(
            [sys.executable, str(program), self.file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def __call__(self, *commands):
        for command in commands:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.close()


def end(recording, device=0):
    return recording.peak(device, recording.counts(device)["events"] - 1)


def look(followed):
    while followed.read():
        pass
    followed.look()
    return followed.answers[0] if followed.answers else None


# ---- Reading on ----


def test_each_look_equals_the_whole_file_read_then(job):
    job("alloc a 3")
    live = _core.Live(job.file)
    for commands in (["alloc b 5", "step"], ["free a"], ["alloc c 1", "step", "free b"], []):
        job(*commands)
        live.poll()
        followed, whole = live.recording(), _core.Recording.from_file(job.file)
        assert followed.to_dict() == whole.to_dict()
        assert followed.file == whole.file
        assert end(followed) == end(whole)
        assert followed.notes() == whole.notes()
    assert end(followed)["peak"]["allocated_bytes"] == 1 * MIB
    assert end(followed)["whole_peak"]["allocated_bytes"] == 8 * MIB


def test_a_look_reads_only_what_came_since(job):
    job(*["alloc a 1", "free a"] * 200)
    live = _core.Live(job.file)
    first = live.poll()
    assert first["events"] == 600
    assert not first["more"]
    again = live.poll()
    assert again == first
    job("alloc b 1")
    assert live.poll()["events"] == 601
