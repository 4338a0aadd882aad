"""Threads that come and go while memlab and torch record, on every device.

After each group of threads memlab's totals are torch's to the byte, and its events and
stacks are those of torch's own history.  Prints the seed.
"""

import random
import sys
import threading

import both
import torch

import memlab

GROUP = 8  # threads at a time
MIB = 1 << 20


def one_thread(seed):
    """A short life: blocks on both kinds of stream, some freed by another thread."""
    order = random.Random(seed)
    device = seed % torch.cuda.device_count()
    side = torch.cuda.Stream(device=device)
    live = []
    with torch.cuda.device(device):
        for _ in range(order.randint(1, 12)):
            size = order.randint(1, order.choice((4096, MIB, 20 * MIB)))
            with torch.cuda.stream(order.choice((None, side))):
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            live.append(torch.empty(size))
            if order.random() < 0.5:
                live.pop(0)
        w = torch.ones(100, 100, device="cuda", requires_grad=True)
        (w * w).sum().backward()
    return live


def run_group(seeds):
    """What the threads left behind; raises what one of them raised."""
    left, failures = [], []

    def run(seed):
        try:
            left.append(one_thread(seed))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=[seed]) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return left


def leave_daemons():
    """Threads that still wait inside Python, having allocated, when the process ends."""
    ready = threading.Barrier(4)

    def wait():
        held = torch.empty(1000, device="cuda"), torch.empty(1000)
        ready.wait()
        threading.Event().wait()
        del held

    for _ in range(3):
        threading.Thread(target=wait, daemon=True).start()
    ready.wait()


def main(count, seed):
    print("seed", seed)
    torch.empty(1, device="cuda")
    both.start()
    cpu = memlab.MemorySnapshot(source="cpu").start()
    left = []
    for group in range(count // GROUP):
        first = seed + group * GROUP
        left += run_group(range(first, first + GROUP))
        both.reconcile(f"seed {seed}, group {group}")
        left = left[-2 * GROUP :]
        if group % 8 == 0:
            both.check()
    left.clear()
    both.check()
    for snapshot in (cpu, memlab.MemorySnapshot(source="cpu").start()):
        counts = snapshot.stop().data().counts(0)
        assert counts["dropped_events"] == counts["lost_stacks"] == 0, counts
    leave_daemons()
    both.reconcile("daemons")
    print(f"{count} threads, totals and events are torch's")


main(int(sys.argv[1]), int(sys.argv[2]))
