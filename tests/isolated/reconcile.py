"""memlab's totals against torch.cuda.memory_stats(), to the byte, after every step.

Seeded random allocations, frees, streams and cache clearing; prints the seed.

    reconcile.py SEED [STEPS]
"""

import random
import sys
import threading

import both
import torch

import memlab

MIB = 1 << 20
MOST_LIVE = 500


class Program:
    """Random allocations and frees on all devices."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.live = []
        self.devices = torch.cuda.device_count()
        self.streams = [
            [None, torch.cuda.Stream(device=i)] for i in range(self.devices)
        ]

    def size(self):
        magnitude = self.random.choice((512, 4096, MIB, 2 * MIB, 12 * MIB, 70 * MIB))
        return self.random.randint(1, magnitude)

    def step(self):
        device = self.random.randrange(self.devices)
        kind = self.random.random()
        if not self.live or (kind < 0.52 and len(self.live) < MOST_LIVE):
            stream = self.random.choice(self.streams[device])
            with torch.cuda.device(device), torch.cuda.stream(stream):
                block = torch.empty(self.size(), dtype=torch.uint8, device="cuda")
            self.live.append(block)
        elif kind < 0.95:
            block = self.live.pop(self.random.randrange(len(self.live)))
            if self.random.random() < 0.2:
                index = block.device.index
                block.record_stream(self.streams[index][1])
        elif kind < 0.98:
            torch.cuda.synchronize(device)
        else:
            torch.cuda.empty_cache()

    def run(self, steps, where):
        for step in range(steps):
            self.step()
            both.reconcile(f"{where}, step {step}")


def reset_peaks():
    for device in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(device)


def check_after_start(program, where, steps):
    """A recording that begins in the middle knows what is there already."""
    reset_peaks()
    recorder = memlab.MemorySnapshot(max_entries=50).start()
    both.reconcile(f"{where}, just started")
    program.run(steps, where)
    recording = recorder.data()
    segments = [s for s in recording.to_dict()["segments"]]
    for device in range(torch.cuda.device_count()):
        stats = torch.cuda.memory_stats(device)
        mine = [s for s in segments if s["device"] == device]
        blocks = [b for s in mine for b in s["blocks"]]
        reserved = sum(s["total_size"] for s in mine)
        assert reserved == stats["reserved_bytes.all.current"], where
        assert reserved == sum(block["size"] for block in blocks), where
        allocated = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
        assert allocated == stats["allocated_bytes.all.current"], where
        count = recording.counts(device)
        assert count["dropped_events"] == count["lost_stacks"] == 0, (where, count)
    recorder.stop()


def check_beside_a_thread(seed):
    """Starting and stopping while another thread allocates; then the totals agree."""
    halt = threading.Event()
    failures = []

    def allocate():
        program = Program(seed + 1)
        try:
            while not halt.is_set():
                program.step()
        except BaseException as error:
            failures.append(error)
        program.live.clear()

    thread = threading.Thread(target=allocate)
    thread.start()
    recorders = [memlab.MemorySnapshot(max_entries=100) for _ in range(3)]
    for i in range(120):
        recorder = recorders[i % 3]
        if i >= 3:
            recorder.stop()
        recorder.start()
        if i % 10 == 0:
            recorder.data()
    halt.set()
    thread.join()
    assert not failures, failures
    for device in range(torch.cuda.device_count()):
        ours, theirs = memlab.stats(device), torch.cuda.memory_stats(device)
        for name in ("allocated", "active", "requested", "reserved"):
            expected = theirs[f"{name}_bytes.all.current"]
            assert ours[f"{name}_bytes"] == expected, (seed, device, name)
        assert ours["inconsistencies"] == 0, (seed, device, ours)
    for recorder in recorders:
        recorder.stop()


def main(seed, steps=150):
    print("seed", seed)
    program = Program(seed)
    for _ in range(60):
        program.step()
    for start in range(3):
        check_after_start(program, f"seed {seed}, recording {start}", steps)
        # What happens while nobody records must not be missed by the next recording.
        for _ in range(20):
            program.step()
    check_beside_a_thread(seed)


main(*map(int, sys.argv[1:]))
