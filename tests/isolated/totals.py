"""Totals of recordings that begin while memory is there, against torch's, to the byte.

    totals.py SEED PROGRAMS [ONLY]

runs random programs on one to all devices: memory before the recording, other threads,
streams, pools and allocator settings.  Allocated, active, requested and reserved bytes, at
the end and at the peak, must be torch's in the process, in the recording, in its .mlab
file, in its pickle and in what files merge to.  Prints each program that it runs; ONLY is
the one to run of them.
"""

import contextlib
import random
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import torch

import memlab
from memlab._compare.merge import merge
from memlab._files.load import read_recording

KIB, MIB = 1 << 10, 1 << 20
NAMES = ("allocated", "active", "requested", "reserved")
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:{split}",
    "garbage_collection_threshold:{threshold}",
    "roundup_power2_divisions:{divisions}",
    "expandable_segments:True,max_split_size_mb:{split}",
    "expandable_segments:True,roundup_power2_divisions:{divisions}",
    "max_split_size_mb:{split},garbage_collection_threshold:{threshold},"
    "roundup_power2_divisions:{divisions}",
)
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
DEVICES = range(torch.cuda.device_count())
STREAMS = [[torch.cuda.Stream(device=d) for _ in range(2)] for d in DEVICES]

set_settings = (
    getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    or torch._C._cuda_cudaCachingAllocator_set_allocator_settings  # up to torch 2.8
)


class Worker:
    """Allocates and frees at random on some devices, alone or in a thread of its own."""

    def __init__(self, r, devices, pooling):
        self.random = r
        self.devices = devices
        self.live = []
        self.pools = {}
        self.pooling = pooling
        self.sizes = r.choice(
            [(KIB, 100 * KIB, MIB), (100 * KIB, 3 * MIB, 12 * MIB), (MIB, 70 * MIB)]
        )

    def place(self, device):
        """A stream, and now and then a pool, to allocate on."""
        r = self.random
        places = contextlib.ExitStack()
        places.enter_context(torch.cuda.device(device))
        stream = r.choice([None, None, *STREAMS[device]])
        places.enter_context(torch.cuda.stream(stream))
        if self.pooling and r.random() < 0.2:
            if device not in self.pools:
                self.pools[device] = torch.cuda.MemPool()
            places.enter_context(torch.cuda.use_mem_pool(self.pools[device], device))
        return places

    def step(self):
        r = self.random
        kind = r.random()
        if not self.live or (kind < 0.52 and len(self.live) < 200):
            device = r.choice(self.devices)
            size = r.randint(1, r.choice(self.sizes))
            with self.place(device), contextlib.suppress(torch.OutOfMemoryError):
                self.live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        elif kind < 0.95:
            block = self.live.pop(r.randrange(len(self.live)))
            if r.random() < 0.2:
                block.record_stream(r.choice(STREAMS[block.device.index]))
        elif kind < 0.98:
            torch.cuda.synchronize(r.choice(self.devices))
        else:
            torch.cuda.empty_cache()

    def run(self, steps):
        for _ in range(steps):
            self.step()


def run_together(workers, steps):
    """Each WORKER in a thread of its own, but the first."""
    failures = []

    def work(worker):
        try:
            worker.run(steps)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(w,)) for w in workers[1:]]
    for thread in threads:
        thread.start()
    work(workers[0])
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def torchs(device):
    stats = torch.cuda.memory_stats(device)
    return {
        (name, end): stats.get(f"{name}_bytes.all.{key}", 0)
        for name in NAMES
        for end, key in (("now", "current"), ("peak", "peak"))
    }


def of_process(device):
    stats = memlab.stats(device)
    assert stats["inconsistencies"] == 0
    return {
        (name, end): stats[f"{name}_bytes{key}"]
        for name in NAMES
        for end, key in (("now", ""), ("peak", "_peak"))
    }


def of_recording(recording, device):
    peak = recording.peak(device)
    for name in ("mismatches", "dropped_events", "overwritten_events"):
        assert peak[name] == 0, (name, peak[name])
    totals = {(n, "peak"): peak["whole_peak"][f"{n}_bytes"] for n in NAMES}
    allocated = peak["peak"]["allocated_bytes"]
    assert allocated == totals["allocated", "peak"], allocated
    keys = {"reserved": "total_size", **{n: f"{n}_size" for n in NAMES[:3]}}
    segments = [s for s in recording.to_dict()["segments"] if s["device"] == device]
    for name, key in keys.items():
        totals[name, "now"] = sum(s[key] for s in segments)
    blocks = [b for s in segments for b in s["blocks"]]
    assert sum(b["size"] for b in blocks) == totals["reserved", "now"]
    live = [b for b in blocks if b["state"] == "active_allocated"]
    assert sum(b["size"] for b in live) == totals["allocated", "now"]
    return totals


def settings_of(r):
    return r.choice(SETTINGS).format(
        split=r.choice([21, 32, 100]),
        threshold=r.choice([0.05, 0.3, 0.8]),
        divisions=r.choice(["4", "[256:1,512:2,1024:4,>:8]"]),
    )


def run(seed, folder):
    r = random.Random(seed)
    conf = settings_of(r)
    devices = sorted(r.sample(DEVICES, r.randint(1, len(DEVICES))))
    fraction = r.choice([1.0, 1.0, 0.002])
    pooling = r.random() < 0.3 and (VERSION > (2, 7) or "expandable" not in conf)
    context = r.choice([None, "state", "alloc", "all"])
    workers = [
        Worker(random.Random(f"{seed}-{i}"), devices, pooling)
        for i in range(r.choice([1, 1, 2, 4]))
    ]
    print(f"{seed}: {conf} on {devices}, {len(workers)} threads", flush=True)
    set_settings(conf)
    for device in DEVICES:
        torch.cuda.set_per_process_memory_fraction(fraction, device)
    torch.cuda.set_device(r.choice(devices))
    run_together(workers, r.choice([0, 10, 60]))
    for device in DEVICES:
        torch.cuda.reset_peak_memory_stats(device)
    mlab, pickle = folder / "rank0.mlab", folder / "rank1.pickle"
    snapshot = memlab.MemorySnapshot(max_entries=100_000, context=context, file=mlab)
    with snapshot:
        run_together(workers, r.choice([0, 30, 150]))
        expected = {device: torchs(device) for device in DEVICES}
        found = {"the process": {device: of_process(device) for device in DEVICES}}
    recordings = {"the recording": snapshot.data()}
    snapshot.save(pickle)
    recordings["the .mlab file"] = read_recording(mlab)
    recordings["the pickle"] = read_recording(pickle)
    for name, recording in recordings.items():
        found[name] = {device: of_recording(recording, device) for device in DEVICES}
    merged = merge([mlab, pickle])
    for rank in merged.ranks():
        totals = found[f"rank {rank['rank']} of the merged"] = {}
        for device in rank["devices"]:
            totals[device["number"]] = of_recording(merged, device["device"])
    assert len(found) == 6, list(found)
    nothing = dict.fromkeys(expected[0], 0)
    for where, totals in found.items():
        for device in DEVICES:
            # Files of several ranks merge without the devices that nobody used.
            figures = totals.get(device, nothing)
            assert figures == expected[device], (
                f"{seed}: cuda:{device} in {where}: {figures}, torch {expected[device]}"
            )


def main(seed, programs, only=None):
    for number in range(programs):
        if only in (None, number):
            with tempfile.TemporaryDirectory() as folder:
                run(f"{seed}-{number}", Path(folder))
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
    print(f"{programs} programs: all totals are torch's")


main(*map(int, sys.argv[1:]))
