"""Kills training programs at random moments and reads the files they leave.

    python training_kills.py KILLS [SEED]

Each is a process that trains a small net on a CUDA device and, after each step, puts
what torch's own statistics count since the recording began into memory that the parent
owns too: allocations, frees, segments, and the bytes asked for of active blocks.  The
parent kills it somewhere in a step and demands of the file: after some event it has
exactly the counts and bytes of the last step that was told, and nothing is lost or
damaged.
"""

import mmap
import os
import random
import signal
import sys
import tempfile
import time

import torch
from torch import nn

import memlab
from memlab._files.load import read_recording

# Actions of events and the counter of torch.cuda.memory_stats() that counts each.
COUNTERS = {
    "alloc": "allocation.all.allocated",
    "free_requested": "allocation.all.freed",
    "free_completed": "active.all.freed",
    "segment_alloc": "segment.all.allocated",
    "segment_free": "segment.all.freed",
}
BYTES = "requested_bytes.all.current"
WORDS = len(COUNTERS) + 1
# Words of the shared memory: ticks, steps told, then what was told, in turn at two
# places, so that one is whole whenever the process is killed.
TICKS, STEPS, TOLD = 0, 1, 2
MOST_TICKS = 400


def figures():
    stats = torch.cuda.memory_stats()
    return [stats[name] for name in (*COUNTERS.values(), BYTES)]


def make_net(shared):
    def tick(*_):
        shared[TICKS] += 1

    net = nn.Sequential(
        nn.Linear(64, 256),
        nn.GELU(),
        nn.LayerNorm(256),
        nn.Linear(256, 700),
        nn.GELU(),
        nn.Linear(700, 10),
    ).cuda()
    for module in net:
        module.register_forward_hook(tick)
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(tick)
    return net


def train(path, seed, shared):
    chance = random.Random(seed)
    net = make_net(shared)
    optimizer = torch.optim.AdamW(net.parameters())
    side = torch.cuda.Stream()
    snapshot = memlab.MemorySnapshot(file=path, max_entries=1000).start()
    before = figures()
    kept = []
    while snapshot.recording:
        optimizer.zero_grad()
        batch = torch.randn(chance.randrange(1, 5000), 64, device="cuda")
        net(batch).square().mean().backward()
        optimizer.step()
        with torch.cuda.stream(side):
            kept.append(torch.empty(chance.randrange(1, 1 << 22), device="cuda"))
        kept[-1].record_stream(torch.cuda.current_stream())
        if len(kept) > 8:
            kept.clear()
        if chance.random() < 0.1:
            torch.cuda.empty_cache()
        step = shared[STEPS]
        now = [new - old for new, old in zip(figures(), before, strict=True)]
        place = TOLD + WORDS * (step % 2)
        for i, value in enumerate(now):
            # Bytes may have become fewer than they were.
            shared[place + i] = value % (1 << 64)
        shared[STEPS] = step + 1


def check(path, shared):
    """Events in the file; AssertionError where those told are missing or wrong."""
    recording = read_recording(path)
    about = recording.file
    assert about["state"] == "cut off", about
    for key in ("gaps", "damaged_chunks", "unknown_starts", "stopped", "lost_records"):
        assert not about[key], about
    steps = shared[STEPS]
    place = TOLD + WORDS * ((steps - 1) % 2)
    told = [shared[place + i] for i in range(WORDS)]
    seen = dict.fromkeys(COUNTERS, 0)
    live = 0
    events = recording.to_dict()["device_traces"][0]
    found = steps == 0
    for event in events:
        action = event["action"]
        if action in seen:
            seen[action] += 1
        if action == "alloc":
            live += event["size"]
        elif action == "free_completed":
            # A block that another stream may use yet counts until then.
            live -= event["size"]
        found = found or [*seen.values(), live % (1 << 64)] == told
    assert found, (
        f"told {told} after {steps} steps, {[*seen.values(), live]} at the end"
    )
    return len(events)


def kill_one(path, seed):
    """One program, killed: the steps it told, the events that its file has."""
    shared = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    at = random.Random(seed).randrange(1, MOST_TICKS)
    child = os.fork()
    if child == 0:
        try:
            train(path, seed, shared)
        finally:
            os._exit(1)
    while shared[TICKS] < at:
        done, status = os.waitpid(child, os.WNOHANG)
        assert done == 0, f"seed {seed}: the program ended with {status}"
        time.sleep(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return shared[STEPS], check(path, shared)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from None


def main():
    kills = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"kills {kills}, first seed {first}", flush=True)
    steps = events = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + kills):
            told, stored = kill_one(os.path.join(folder, "run.mlab"), seed)
            steps += told
            events += stored
    print(f"{kills} kills: {steps} steps told, {events} events read, 0 lost, 0 corrupt")


if __name__ == "__main__":
    main()
