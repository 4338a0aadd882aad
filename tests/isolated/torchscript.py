"""TorchScript beside torch's own recorder: every allocation has torch's frames, those of
functions, modules and their backward, of traced ones, of one that was saved, in another
thread, and where it calls Python; in memory, in files, and with C++ frames."""

import io
import pickle
import threading

import torch
from both import by_line, frames

import memlab

KIB = 1 << 10


@torch.jit.ignore
def in_python(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@torch.jit.script
def inner(x):
    y = x * 2
    return torch.relu(y)


@torch.jit.script
def outer(x):
    a = inner(x)
    b = in_python(a)
    return a + b


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Part()
        self.second = Part()

    def forward(self, x):
        x = self.first(x)
        if bool(x.sum() > 1e9):
            x = x + 1
        return self.second(x) * 2


def interpreted(stack):
    """The frames of Python and TorchScript, and where the interpreters stand."""
    own = ("PyEval", "torch::jit::InterpreterStateImpl::run")
    return [
        f for f in stack
        if not ("::" in f[2] or ".so" in f[0]) or any(name in f[2] for name in own)
    ]


torch.manual_seed(0)
scripted = torch.jit.script(Whole()).cuda()
traced = torch.jit.trace(Part().cuda(), torch.randn(8, 64, device="cuda"))
buffer = io.BytesIO()
torch.jit.save(torch.jit.script(Part()), buffer)
buffer.seek(0)
loaded = torch.jit.load(buffer, map_location="cuda")
batch = torch.randn(512, 64, device="cuda")
kept = []


def step():
    kept[:] = [outer(batch)]
    kept.append(scripted(batch))
    kept[-1].sum().backward()
    kept.append(traced(batch))
    kept.append(loaded(batch))
    thread = threading.Thread(target=lambda: kept.append(outer(batch)))
    thread.start()
    thread.join()


# The interpreter looks at the first runs and then writes the program anew.
for _ in range(4):
    step()
torch.cuda.memory._record_memory_history(stacks="python")
memlab.record_memory_history()
snapshot = memlab.MemorySnapshot(file="script.mlab").start()
step()
theirs = torch.cuda.memory._snapshot()
ours = memlab.snapshot()
memlab.dump_snapshot("script.pickle")
snapshot.stop()
with open("script.pickle", "rb") as file:
    dumped = pickle.load(file)
expected = frames(theirs)
assert len(expected) > 20, len(expected)
for name, found in (
    ("snapshot()", ours),
    ("dump_snapshot()", dumped),
    ("a file", memlab.load("script.mlab")),
):
    for one, other in zip(expected, frames(found), strict=True):
        assert one == other, (name, one, other)
assert by_line(ours, __file__)[Part.forward.__code__.co_firstlineno + 1] > 0, by_line(ours, __file__)
names = {frame[2] for stack in expected for frame in stack}
assert {"outer", "forward", "<forward op>", "<backward op>"} <= names, names

# The report's lines are these, too, and never of formulas that torch wrote.
told = {(row["file"], row["line"]) for row in snapshot.peak(device=0)["by_line"]}
with open(__file__) as file:
    text = ["", *file.read().splitlines()]
expected_lines = {(__file__, text.index("    b = in_python(a)")),
                  (__file__, text.index("    return a + b"))}  # fmt: skip
assert expected_lines <= told, told
assert not any(file == "<string>" for file, _ in told), told
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
    assert interpreted(one) == interpreted(other), (one, other)
