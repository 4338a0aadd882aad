"""A program that makes the CUDA allocator do all that it can, recorded twice.

Run on a CUDA device with both recorders on; fails where they differ.
"""

import sys

import both
import torch
from torch import nn

MIB = 1 << 20


def train(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 700), nn.GELU(), nn.Linear(700, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(500, 300, device=device)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def use_streams():
    side = torch.cuda.Stream()
    shared = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        own = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        shared.add_(1)
        shared.record_stream(side)
        own.record_stream(torch.cuda.default_stream())
    del shared, own
    again = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return again, torch.empty(1000, device="cuda")


def use_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    return pool, inside, torch.empty(7 * MIB, dtype=torch.uint8, device="cuda")


def run_out_of_memory():
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise AssertionError("4 TiB were found")


def main(first):
    before = [torch.empty(n, device="cuda") for n in (10, 5000, 3 * MIB, 40 * MIB)]
    before[1] = None
    if first == "memlab":
        both.memlab.record_memory_history()
    both.start()
    kept = [train("cuda:0")]
    both.check()
    kept.append(use_streams())
    torch.cuda.memory._set_memory_metadata("phase two")
    kept.append(torch.empty(100, device="cuda"))
    torch.cuda.memory._set_memory_metadata("")
    del before[2]
    both.check()
    kept.append(use_pool())
    run_out_of_memory()
    both.check()
    if torch.cuda.device_count() > 1:
        kept.append(train("cuda:1"))
        kept.append(kept[0][0][0].weight.to("cuda:1"))
    del kept[0]
    before.clear()
    torch.cuda.empty_cache()
    snapshot = both.check()

    seen = set(both.actions(snapshot))
    wanted = {"alloc", "free_requested", "free_completed", "oom"}
    assert wanted <= seen, wanted - seen
    expandable = snapshot["allocator_settings"]["expandable_segments"]
    wanted = {"segment_map", "segment_unmap"} if expandable else {"segment_free"}
    assert wanted <= seen, wanted - seen
    assert any(e["user_metadata"] == "phase two" for e in snapshot["device_traces"][0])
    names = {note["name"] for note in snapshot["external_annotations"]}
    assert "Optimizer.step#AdamW.step" in names, names
    states = {b["state"] for s in snapshot["segments"] for b in s["blocks"]}
    assert "active_allocated" in states and "inactive" in states, states
    for trace in snapshot["device_traces"]:
        print(len(trace))


main(sys.argv[1])
