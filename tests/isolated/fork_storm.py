"""Forks by the hundred off a process that uses CUDA and records: children, their
children, DataLoader workers and started programs.

No child records, hangs or leaves the parent's figures changed.
"""

import os
import subprocess
import sys
import threading

import both
import torch
from torch.utils.data import DataLoader, Dataset

import memlab


class Squares(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((1000,), float(index * index))


def status_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def live_in_child(nested):
    """Allocates on the cpu, asks for the figures, forks once more; 0 where it recorded
    nothing."""
    before = [memlab.stats(device)["events"] for device in ("cpu", "cuda:0")]
    held = [torch.empty(1000 + i) for i in range(20)]
    if nested:
        child = os.fork()
        if child == 0:
            os._exit(live_in_child(False))
        if status_of(child) != 0:
            return 3
    del held
    after = [memlab.stats(device)["events"] for device in ("cpu", "cuda:0")]
    return 0 if before == after else 2


def check_forks(count):
    """Forks while other threads allocate, so that each may hold any lock at the time."""
    halt = threading.Event()
    failures = []

    def allocate():
        live = {}
        try:
            for i in range(1 << 60):
                if halt.is_set():
                    return
                live[i % 30] = torch.empty(1 + i % 100_000, device="cuda")
                live[-i % 30] = torch.empty(100)
                if i % 5000 == 0:
                    recorder.data()
        except BaseException as error:
            failures.append(error)

    recorder = memlab.MemorySnapshot(max_entries=1000).start()
    threads = [threading.Thread(target=allocate) for _ in range(2)]
    for thread in threads:
        thread.start()
    bad = []
    for i in range(count):
        child = os.fork()
        if child == 0:
            os._exit(live_in_child(nested=i % 4 == 0))
        status = status_of(child)
        if status != 0:
            bad.append((i, status))
    halt.set()
    for thread in threads:
        thread.join()
    recorder.stop()
    assert not bad and not failures, (bad, failures)


def check_workers():
    """Workers that live through several epochs, beside training."""
    loader = DataLoader(
        Squares(),
        batch_size=4,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = torch.nn.Linear(1000, 10, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        total = 0.0
        for batch in loader:
            total += float(batch[:, 0].sum())
            model(batch.to("cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            both.reconcile(f"epoch {epoch}")
        assert total == sum(i * i for i in range(32)), total


def main(count):
    torch.empty(1, device="cuda")
    sys.setswitchinterval(0.0005)  # the threads leave the main thread more turns
    cpu = memlab.MemorySnapshot(source="cpu", max_entries=10_000).start()
    check_forks(count)
    both.reconcile("after the forks")
    both.start()
    check_workers()
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0
    both.check()
    cpu.stop()
    print(f"{count} forks and {(count + 3) // 4} of their own, none recorded or hung")


main(int(sys.argv[1]))
