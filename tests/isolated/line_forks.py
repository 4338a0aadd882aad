"""Forks while lines are profiled and another thread holds the allocator's lock: what the
child runs of a profiled function must not wait for a thread that it does not have."""

import os
import signal
import threading

import torch

import memlab

blocks = [torch.empty(1, device="cuda") for _ in range(20_000)]
done = threading.Event()


def work():
    x = 1
    return x


def read_all_blocks():
    """The start of a recording has them from the allocator, under its lock."""
    while not done.is_set():
        with memlab.MemorySnapshot():
            pass


profiler = memlab.LineProfiler(work)
reader = threading.Thread(target=read_all_blocks, daemon=True)
with profiler:
    work()
    reader.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            work()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    reader.join()
assert {row[1] for row in profiler._rows(0, ())} == {1}
