"""Recordings that wait for CUDA begin where TorchScript, and no Python, initialises it: all but
what its first operator allocates itself is recorded, and that is there from the start."""

import os

import torch

import memlab

MIB = 1 << 20


@torch.jit.script
def work(n: int):
    a = torch.zeros([n], device="cuda")
    b = a + 1
    c = b * 2
    return a, c


waiting = memlab.MemorySnapshot(source="cuda", file="script.mlab").start()
memlab.record_memory_history()
assert waiting.waiting
(torch.ones(1000) + 1).sum()
child = os.fork()  # could not use CUDA if an operator had made memlab initialise it
if child == 0:
    kept = work(MIB)
    torch.cuda.init()
    os._exit(torch.cuda.memory_allocated() != 8 * MIB)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert waiting.waiting

kept = work(MIB)
assert not torch.cuda.is_initialized() and not waiting.waiting
stats = memlab.stats("cuda:0")
assert stats["allocated_bytes"] == 8 * MIB, stats
more = work(MIB // 4)
python = torch.empty(MIB, device="cuda")  # which initialises it in Python's way, too
assert torch.cuda.is_initialized()
waiting.stop()
total = torch.cuda.memory_allocated()
assert total == (8 + 2 + 4) * MIB and memlab.stats("cuda:0")["allocated_bytes"] == total

for snapshot in (memlab.snapshot(), memlab.load("script.mlab")):
    active = sum(s["allocated_size"] for s in snapshot["segments"])
    events = snapshot["device_traces"][0]
    allocated = [e["size"] for e in events if e["action"] == "alloc"]
    # b and c of the first call, a, b and c of the second, and Python's own.
    assert allocated == [4 * MIB] * 2 + [MIB] * 3 + [4 * MIB], allocated
    assert active == total, active
peak = waiting.peak(device=0)
assert peak["peak"]["allocated_bytes"] == total and peak["mismatches"] == 0, peak["peak"]
lines = {(row["line"], row["bytes"]) for row in peak["by_line"] if row["file"] == __file__}
# c of the first call, a and c of the second, and Python's own; a of the first has no line.
assert lines == {(17, 4 * MIB), (15, MIB), (17, MIB), (38, 4 * MIB)}, lines
memlab.record_memory_history(None)
