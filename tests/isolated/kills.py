"""Kills recorders at random moments and reads the files they leave.

    python kills.py KILLS [SEED]

Each recorder is a process whose threads emit events that follow from a seed, on a lane
each, and after each count it in memory that the parent owns too.  The parent kills it at
a random count, reads the file, and demands of every lane: all events that were counted,
at the places and sizes that the seed says, each with the stack of its own line.
"""

import mmap
import os
import random
import signal
import sys
import tempfile
import threading
import time

from memlab import _core
from memlab._record.memory_snapshot import MemorySnapshot

LANES = 4
SEGMENT = 1 << 40
MOST = 12_000


def sizes(seed, lane):
    """The sizes of a lane's blocks, without end."""
    chance = random.Random(seed * LANES + lane)
    while True:
        yield 512 * chance.randrange(1, 2000)


def emit_line_a(script, lane, action, addr, size):
    script.emit(action, addr, size, device=lane, time=time.time_ns())


def emit_line_b(script, lane, action, addr, size):
    script.emit(action, addr, size, device=lane, time=time.time_ns())


def record(script, lane, seed, counts):
    """Emits and counts until killed; counts[lane] is what the file must have."""
    base = SEGMENT * (lane + 1)
    count = 0
    for number, size in enumerate(sizes(seed, lane)):
        emit = emit_line_a if number % 2 else emit_line_b
        for action in ("alloc", "free_requested", "free_completed"):
            emit(script, lane, action, base, size)
            count += 1
            counts[lane] = count


def recorder(path, seed, counts):
    script = _core.Script()
    for lane in range(LANES):
        script.emit("segment_alloc", SEGMENT * (lane + 1), 4 << 20, device=lane)
    snapshot = MemorySnapshot(source="script", file=path, max_entries=1000).start()
    threads = [
        threading.Thread(target=record, args=(script, lane, seed, counts))
        for lane in range(LANES)
    ]
    for thread in threads:
        thread.start()
    counts[LANES] = 1
    for thread in threads:
        thread.join()
    assert snapshot.recording


def check(path, seed, counts):
    """Events read in all; AssertionError where one is missing or wrong."""
    recording = _core.Recording.from_file(path)
    about = recording.file
    assert about["state"] == "cut off", about
    assert not about["gaps"] and not about["damaged_chunks"], about
    assert not about["unknown_starts"] and not about["stopped"], about
    traces = recording.to_dict()["device_traces"]
    total = 0
    for lane in range(LANES):
        wanted = counts[lane]
        events = traces[lane] if lane < len(traces) else []
        # One event may be stored and not counted yet.
        assert wanted <= len(events) <= wanted + 1, (lane, wanted, len(events))
        total += len(events)
        actions = ("alloc", "free_requested", "free_completed")
        for at, size in enumerate(sizes(seed, lane)):
            part = events[3 * at : 3 * at + 3]
            if not part:
                break
            line = emit_line_a if at % 2 else emit_line_b
            for event, action in zip(part, actions, strict=False):
                frame = event["frames"][0]
                assert event["action"] == action, (lane, at, event)
                assert event["addr"] == SEGMENT * (lane + 1), (lane, at, event)
                assert event["size"] == size, (lane, at, event)
                assert frame["name"] == line.__name__, (lane, at, frame)
                assert frame["line"] == line.__code__.co_firstlineno + 1, frame
                assert event["frames"][1]["name"] == "record", (lane, at, event)
    return total


def kill_one(path, seed):
    """One recorder, killed; events that its file has."""
    # A store of one word: what a kill finds is the old count or the new one.
    counts = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    # Seldom during the start, mostly while events come.
    at = random.Random(seed).randrange(MOST)
    child = os.fork()
    if child == 0:
        try:
            recorder(path, seed, counts)
        finally:
            os._exit(1)
    lane = seed % LANES
    while counts[lane] < at:
        done, status = os.waitpid(child, os.WNOHANG)
        assert done == 0, f"seed {seed}: the recorder ended with {status}"
        time.sleep(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return check(path, seed, counts) if counts[LANES] else 0
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from None


def main():
    kills = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"kills {kills}, first seed {first}", flush=True)
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + kills):
            total += kill_one(os.path.join(folder, "run.mlab"), seed)
    print(f"{kills} kills: {total} events read, 0 lost, 0 corrupt")


if __name__ == "__main__":
    main()
