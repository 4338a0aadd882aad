"""The last part of a long run: the file keeps it, and is exact from its new start on."""

import collections
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount

import memlab
from memlab import _core
from memlab._files.load import read_recording

HERE = Path(__file__).resolve().parents[1]
LIMIT = 16 << 20
BASE = 1 << 40


class Program:
    """Random allocations on two devices, with steps; some blocks live long, some wait for
    their free.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.script = _core.Script()
        self.time = 0
        self.live = [{}, {}]
        self.waiting = collections.deque()
        self.free = [list(range(400)), list(range(400))]
        for device in 0, 1:
            self.emit("segment_alloc", 0, 400 << 20, device)

    def emit(self, action, slot, size, device):
        self.time += 1000
        self.script.emit(action, BASE + (slot << 20), size, device=device, time=self.time)

    def alloc(self, device):
        slots = self.free[device]
        slot = slots.pop(self.chance.randrange(len(slots)))
        size = 512 * self.chance.randrange(1, 2000)
        self.emit("alloc", slot, size, device)
        self.live[device][slot] = size
        return BASE + (slot << 20)

    def drop(self, device, wait=False):
        slot = self.chance.choice(list(self.live[device]))
        size = self.live[device].pop(slot)
        self.emit("free_requested", slot, size, device)
        self.waiting.append((slot, size, device))
        if not wait:
            slot, size, device = self.waiting.popleft()
            self.emit("free_completed", slot, size, device)
            self.free[device].append(slot)

    def run(self, events, every=3000):
        for at in range(events // 3):
            device = int(self.chance.random() < 0.2)
            self.alloc(device)
            if len(self.live[device]) > 200 or self.chance.random() < 0.97:
                self.drop(device, wait=at % 10_000 == 0)
            if at % every == 0:
                memlab.step()


@pytest.fixture
def record(tmp_path):
    """record(events, keep_last=..., **options): (the whole recording, the one of the last
    part, the latter's path); both of one run.
    """

    def run(events, keep_last="16MiB", ending=lambda program: None):
        program = Program(1)
        paths = tmp_path / "whole.mlab", tmp_path / "last.mlab"
        options = {}, {"keep_last": keep_last}
        snapshots = [
            memlab.MemorySnapshot(source="script", file=path, max_entries=1, **more)
            for path, more in zip(paths, options)
        ]
        for snapshot in snapshots:
            snapshot.start()
        try:
            program.run(events)
            ending(program)
        finally:
            for snapshot in snapshots:
                # Without a look at the memory, which is an event.
                snapshot._end()
            program.script.reset()
        return read_recording(paths[0]), read_recording(paths[1]), paths[1]

    return run


def totals(recording, device):
    peak = recording.peak(device)
    now = recording.peak(device, recording.counts(device)["events"] - 1)["peak"]
    return peak["whole_peak"], now["allocated_bytes"], now["reserved_bytes"]


def test_the_kept_part_is_exact(record):
    whole, last, path = record(1_200_000)
    assert os.path.getsize(path) <= LIMIT
    assert last.file["gone_events"] > 200_000 and last.file["gone_steps"] > 20
    assert not last.file["gaps"] and not last.file["damaged_chunks"]
    assert not last.file["unknown_starts"] and not last.file["unread_records"]
    theirs, ours = whole.to_dict(), last.to_dict()
    assert ours["segments"] == theirs["segments"]
    gone = 0
    for device in 0, 1:
        kept = ours["device_traces"][device]
        before = len(theirs["device_traces"][device]) - len(kept)
        assert kept == theirs["device_traces"][device][before:]
        assert last.counts(device)["overwritten_events"] == before > 0
        gone += before
        assert totals(last, device) == totals(whole, device)
        # The memory when the kept part begins.
        start = last.peak(device, -1)["peak"]["allocated_bytes"]
        assert start == whole.peak(device, before - 1)["peak"]["allocated_bytes"] > 0
    assert last.file["gone_events"] == gone
    notes = [note for note in whole.notes() if note["kind"] == "step"]
    assert [n for n in last.notes() if n["kind"] == "step"] == notes[last.file["gone_steps"] :]


def test_the_newest_steps_are_whole(record):
    whole, last, path = record(600_000, keep_last="20steps")
    steps = [note["values"][0] for note in last.notes() if note["kind"] == "step"]
    assert steps == list(range(last.file["gone_steps"], 67))
    # Dropped by a MiB at a time.
    assert 20 < len(steps) < 50
    kept = last.to_dict()["device_traces"][0]
    assert kept == whole.to_dict()["device_traces"][0][-len(kept) :]
    # The first of the twenty is there with its first event.
    notes = [note for note in last.notes() if note["kind"] == "step"]
    assert kept[0]["time_us"] * 1000 < notes[-21]["time_ns"]


def test_a_file_that_is_read_while_its_first_part_goes(tmp_path):
    path = tmp_path / "run.mlab"
    program = Program(2)
    gone = set()
    with memlab.MemorySnapshot(
        source="script", file=path, max_entries=1, keep_last="10steps"
    ):
        for _ in range(20):
            program.run(30_000)
            recording = read_recording(path)
            assert os.path.getsize(path) <= LIMIT
            assert not recording.file["gaps"] and not recording.file["damaged_chunks"]
            gone.add(recording.file["gone_events"])
            for device in 0, 1:
                now = _core.stats("script", device)
                _, allocated, reserved = totals(recording, device)
                assert (allocated, reserved) == (
                    now["allocated_bytes"],
                    now["reserved_bytes"],
                )
    program.script.reset()
    assert len(gone) > 3


def test_kills_leave_a_whole_file():
    kills = amount("KEPT_KILLS", 2)
    done = subprocess.run(
        [sys.executable, str(HERE / "isolated" / "kept_kills.py"), str(kills)],
        capture_output=True,
        text=True,
        timeout=60 + 20 * kills,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"{kills} kills: \d+ events read, \d+ dropped", done.stdout)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"keep_last": "4GiB", "max_file_bytes": 1 << 30}, ValueError, "give one of them"),
        ({"keep_last": "4GiB", "file": None}, ValueError, "give file"),
        ({"keep_last": 50}, TypeError, "keep_last must be a str"),
        ({"keep_last": "0steps"}, ValueError, "such as '50steps' or '4GiB', not '0steps'"),
        ({"keep_last": "soon"}, ValueError, "such as '50steps' or '4GiB', not 'soon'"),
        ({"keep_last": "15MiB"}, ValueError, "too small to record to"),
        ({"keep_last": "1GiB", "source": "cpu"}, memlab.Error, "leave out keep_last"),
    ],
)
def test_what_cannot_be_kept(tmp_path, options, error, words):
    options = {"source": "script", "file": tmp_path / "run.mlab", **options}
    with pytest.raises(error, match=words):
        memlab.MemorySnapshot(**options).start()
    assert not list(tmp_path.iterdir())
