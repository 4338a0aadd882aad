"""Regions of collectives, which torch begins in C++, beside those of the program: from the
first one on, each once, in threads too, until the recording ends."""

import threading

import torch
import torch.distributed as dist
from torch.profiler import record_function

import memlab

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tensor = torch.ones(4)


def train():
    with record_function("step"):
        dist.all_reduce(tensor)


def regions(snapshot):
    return [
        (note["kind"], note["name"])
        for note in snapshot.data().notes()
        if note["kind"].startswith("region")
    ]


STEP = [("region_begin", "step"), ("region_begin", "gloo:all_reduce")]
with memlab.MemorySnapshot(source="cpu") as snapshot:
    for _ in range(2):
        train()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
train()
found = regions(snapshot)
begun = [region for region in found if region[0] == "region_begin"]
assert begun == 3 * STEP, found
assert len(found) == 2 * len(begun), found
assert dist.is_initialized() and tensor.tolist() == [1.0] * 4
with memlab.MemorySnapshot(source="cpu") as later:
    train()
assert [region for region in regions(later) if region[0] == "region_begin"] == STEP
dist.destroy_process_group()
