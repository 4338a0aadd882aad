"""Forks while memlab records: DataLoader workers, plain children, children of threads."""

import os
import threading

import torch
from torch.utils.data import DataLoader, Dataset

import memlab
from memlab import _core


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((10,), float(index))


def load(workers):
    loader = DataLoader(
        Numbers(),
        batch_size=8,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    return sum(float(batch.sum()) for batch in loader)


def child_of(function):
    """Runs FUNCTION in a forked child; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException as error:
            os.write(2, repr(error).encode() + b"\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def check_workers(recorder):
    assert load(0) == load(2) == 10 * sum(range(64))
    assert not torch.cuda.is_initialized(), "memlab initialised CUDA before the program"
    assert recorder.waiting

    def in_child():
        torch.zeros(1000, device="cuda")
        assert recorder.waiting, "a child that uses CUDA first began to record"

    assert child_of(in_child) == 0
    device = torch.zeros(1000, device="cuda")
    assert load(2) == 10 * sum(range(64)), "workers fork off a process that uses CUDA"
    return device


def check_child_records_nothing(recorder):
    def in_child():
        before = memlab.stats("cpu")["events"]
        held = [torch.empty(1000) for _ in range(10)]
        assert memlab.stats("cpu")["events"] == before, "the child recorded"
        for source in ("cpu", "cuda"):
            try:
                memlab.MemorySnapshot(source=source).start()
            except memlab.Error as error:
                assert "forked child" in str(error), error
            else:
                raise AssertionError("a child of fork started to record")
        recorder.stop()
        held.clear()

    cpu = memlab.MemorySnapshot(source="cpu").start()
    for _ in range(5):
        assert child_of(in_child) == 0
    mine = torch.empty(12345, dtype=torch.uint8)
    sizes = [e["size"] for e in cpu.stop().data().to_dict()["device_traces"][0]]
    assert 12345 in sizes, "the parent goes on recording"
    del mine


def check_forks_beside_busy_threads():
    """No lock that a recording thread holds may hang the child."""
    halt = threading.Event()
    script = _core.Script()
    script.emit("segment_alloc", 1 << 30, 1 << 21)

    def record():
        recorder = memlab.MemorySnapshot(source="script", max_entries=1000)
        while not halt.is_set():
            recorder.start()
            script.emit("snapshot", 0, 0)
            recorder.data()
            recorder.stop()

    def in_child():
        torch.empty(1000)
        memlab.stats("script")
        try:
            memlab.MemorySnapshot(source="script").start()
        except memlab.Error:
            pass

    threads = [threading.Thread(target=record) for _ in range(3)]
    for thread in threads:
        thread.start()
    statuses = [child_of(in_child) for _ in range(100)]
    halt.set()
    for thread in threads:
        thread.join()
    assert not any(statuses), statuses


def main():
    recorder = memlab.MemorySnapshot(source="cuda").start()
    held = check_workers(recorder)
    check_child_records_nothing(recorder)
    check_forks_beside_busy_threads()
    recorder.stop()
    trace = recorder.data().to_dict()["device_traces"][0]
    assert 4000 in [event["size"] for event in trace if event["action"] == "alloc"]
    del held


main()
