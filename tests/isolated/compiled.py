"""torch.compile beside torch's own recorder: every allocation has torch's frames, those of the
program's lines behind generated code too, in memory and in files; so has a process that ends
without a word, and one that takes what it runs from torch's cache of compiled code.

    compiled.py                     # records, then runs the next two
    compiled.py killed | cached
"""

import os
import pickle
import subprocess
import sys

import torch
from both import by_line, frames

import memlab


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 256)
        self.down = torch.nn.Linear(256, 64)

    def forward(self, x):
        h = self.up(x)
        h = torch.nn.functional.gelu(h)
        return x + self.down(h)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        scores = torch.softmax(x, -1)
        return scores.float()


def of_python(stack):
    """The frames of Python, and where the interpreter stands among them."""
    return [f for f in stack if f[0].endswith(".py") or "PyEval" in f[2]]


torch.manual_seed(0)
with torch.device("cuda"):
    model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.randn(512, 64, device="cuda")


def step():
    loss = compiled(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def record(file):
    """The second step, by both; the first compiles and, with luck, differs."""
    step()
    torch.cuda.memory._record_memory_history(stacks="python")
    memlab.record_memory_history()
    snapshot = memlab.MemorySnapshot(file=file).start()
    step()
    theirs = torch.cuda.memory._snapshot()
    ours = memlab.snapshot()
    return snapshot, theirs, ours


def main():
    snapshot, theirs, ours = record("compiled.mlab")
    memlab.dump_snapshot("compiled.pickle")
    snapshot.stop()
    with open("compiled.pickle", "rb") as file:
        dumped = pickle.load(file)
    expected = frames(theirs)
    assert len(expected) > 10
    for name, found in (
        ("snapshot()", ours),
        ("dump_snapshot()", dumped),
        ("a file", memlab.load("compiled.mlab")),
    ):
        for one, other in zip(expected, frames(found), strict=True):
            assert one == other, (name, one, other)
        assert by_line(found, __file__) == by_line(theirs, __file__), name
    lines = by_line(ours, __file__)
    body = Block.forward.__code__.co_firstlineno
    # Forward and backward of the block, each line its own; and none where all would be.
    assert lines[body + 1] > 0 and lines[body + 2] > 0 and lines[body + 3] > 0, lines
    assert body not in lines, lines
    # The report's lines are these, too.
    peak = snapshot.peak(device=0)
    told = {row["line"] for row in peak["by_line"] if row["file"] == __file__}
    assert {body + 1, body + 2} <= told, told
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)

    torch.cuda.memory._record_memory_history(stacks="all")
    memlab.record_memory_history(stacks="all")
    step()
    theirs = frames(torch.cuda.memory._snapshot())
    ours = frames(memlab.snapshot())
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)
    for one, other in zip(theirs, ours, strict=True):
        assert of_python(one) == of_python(other), (one, other)
    for mode in ("killed", "cached"):
        subprocess.run([sys.executable, __file__, mode], check=True)
    killed = memlab.load("killed.mlab")
    lines = by_line(killed, __file__)
    assert lines[body + 1] > 0 and lines[body + 2] > 0 and body not in lines, lines


if sys.argv[1:] == ["killed"]:
    record("killed.mlab")
    os._exit(0)
elif sys.argv[1:] == ["cached"]:
    _, theirs, ours = record("cached.mlab")
    assert frames(ours) == frames(theirs)
    assert torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"] > 0
else:
    main()
