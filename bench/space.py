"""What events take: memory of the process, and files; and the time to read and write."""

import os
import pickle
import statistics
import tempfile
import time

import recorders
from events import DEPTH, EVENTS, ManyLive


def bench_memory(options, name):
    """What recording as NAME says adds to the memory of this process, which has recorded
    nothing before."""
    import memlab

    work = ManyLive(10_000 if options.quick else 300_000)
    work.extra = DEPTH - 9
    work.run()
    result = {"events": work.pairs * EVENTS}
    with recorders.recorder(name, max_entries=2 * result["events"]) as recorder:
        before = resident_bytes()
        work.run()
        result["resident_bytes"] = resident_bytes() - before
        if name.startswith("memlab"):
            result["recorder"] = memlab.stats(0)
        if name == recorders.FILE:
            result["file_bytes"] = allocated_bytes(recorder)
    return result


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocated_bytes(path):
    """Of the disk: the chunks mapped ahead are holes, or may be."""
    return os.stat(path).st_blocks * 512


def bench_snapshot(options, events):
    """Reading EVENTS events and writing them as torch's pickle; torch's recorder beside
    memlab's."""
    import torch

    import memlab

    repeats = 3 if events > 100_000 else 5
    rows = {}
    work = ManyLive(events // EVENTS + 1)
    work.extra = DEPTH - 9
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._record_memory_history(
            "all", context="all", stacks="python", max_entries=events
        )
        with memlab.MemorySnapshot(max_entries=events) as snapshot:
            work.run()
            times = []
            for _ in range(repeats):
                begin = time.perf_counter()
                recording = snapshot.data()
                read = time.perf_counter()
                recording.write_pickle(path, False)
                times.append((read - begin, time.perf_counter() - read))
            rows["memlab"] = row(times, path)
            kept = recording.counts(0)["events"]
            del recording
            times = []
            for _ in range(1 if events > 100_000 else 3):
                begin = time.perf_counter()
                taken = torch.cuda.memory._snapshot()
                read = time.perf_counter()
                with open(path, "wb") as file:
                    pickle.dump(taken, file)
                times.append((read - begin, time.perf_counter() - read))
                del taken
            rows["torch"] = row(times, path)
        torch.cuda.memory._record_memory_history(None)
    return {"events": kept, "rows": rows}


def row(times, path):
    return {
        "read_s": statistics.median(t[0] for t in times),
        "write_s": statistics.median(t[1] for t in times),
        "total_s": statistics.median(sum(t) for t in times),
        "file_bytes": os.path.getsize(path),
    }
