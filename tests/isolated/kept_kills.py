"""Kills recorders that drop the first part of their file, at random moments, and reads the
files they leave.

    python kept_kills.py KILLS [SEED]

The events of a recorder follow from their number, and it counts each in memory that the
parent owns too.  The parent kills it at a random count, reads the file, and demands: its
size within the limit, no loss, the newest events up to the count, and the memory that
follows from their numbers, at the start and at the end of the part that is kept.
"""

import mmap
import os
import random
import signal
import sys
import tempfile
import time

from memlab import _core
from memlab._record.memory_snapshot import MemorySnapshot

LIMIT = 16 << 20
SEGMENT = 1 << 40
LIVE = 50
MOST = 1_500_000


def addr(number):
    return SEGMENT + (number % (LIVE + 1) << 20)


def size(number):
    return 512 * (1 + number * 7919 % 1999)


def emit(script, number):
    """The event NUMBER: block after block, of which the newest LIVE are there."""
    block, action = divmod(number, 3)
    if action == 0:
        script.emit("alloc", addr(block), size(block), time=1000 * number)
    elif block >= LIVE:
        old = block - LIVE
        what = "free_requested" if action == 1 else "free_completed"
        script.emit(what, addr(old), size(old), time=1000 * number)
    else:
        script.emit("other", 0, 0, time=1000 * number)


def live(number):
    """Bytes that are allocated after the event NUMBER."""
    block, action = divmod(number, 3)
    first = max(0, block - LIVE + (action > 0))
    return sum(size(each) for each in range(first, block + 1))


def recorder(path, keep_last, counts):
    script = _core.Script()
    script.emit("segment_alloc", SEGMENT, (LIVE + 1) << 20)
    snapshot = MemorySnapshot(
        source="script", file=path, max_entries=1000, keep_last=keep_last
    ).start()
    number = 0
    while snapshot.recording:
        emit(script, number)
        number += 1
        counts[0] = number
        if number % 10_000 == 0:
            _core.note_step()


def check(path, count):
    """(events read, events dropped); AssertionError where one is missing or wrong."""
    assert os.path.getsize(path) <= LIMIT
    recording = _core.Recording.from_file(path)
    about = recording.file
    assert about["state"] == "cut off", about
    for key in "gaps", "damaged_chunks", "unknown_starts", "lost_records", "unread_records":
        assert not about[key], (key, about)
    (trace, *others) = recording.to_dict()["device_traces"]
    gone = about["gone_events"]
    # One event may be stored and not counted yet.
    assert count <= gone + len(trace) <= count + 1, (count, gone, len(trace))
    assert not any(others)
    for number, event in enumerate(trace, gone):
        assert event["time_us"] == number, (number, event)
    if trace:
        ends = {-1: gone - 1, len(trace) - 1: gone + len(trace) - 1}
        for position, number in ends.items():
            there = recording.peak(0, position)["peak"]["allocated_bytes"]
            assert there == live(number), (position, number, there, live(number))
    return len(trace), gone


def kill_one(path, seed):
    counts = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    at = random.Random(seed).randrange(MOST)
    child = os.fork()
    if child == 0:
        try:
            recorder(path, "10steps" if seed % 2 else "16MiB", counts)
        finally:
            os._exit(1)
    while counts[0] < at:
        done, status = os.waitpid(child, os.WNOHANG)
        assert done == 0, f"seed {seed}: the recorder ended with {status}"
        time.sleep(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return check(path, counts[0])
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from None


def main():
    kills = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"kills {kills}, first seed {first}", flush=True)
    read = dropped = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + kills):
            events, gone = kill_one(os.path.join(folder, f"run{seed}.mlab"), seed)
            read += events
            dropped += gone
    print(f"{kills} kills: {read} events read, {dropped} dropped, 0 lost, 0 corrupt")


if __name__ == "__main__":
    main()
