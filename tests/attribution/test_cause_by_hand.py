"""The cause of every byte at an instant, each allocation worked out by hand: ways of
training that make memory elsewhere than where their lines stand."""

import json
import os
import shutil

import pytest
import warm

pytestmark = pytest.mark.usefixtures("torch")

# Rows of 1024 floats: an activation of 256 rows has 1 MiB, a weight 4 MiB.
PREAMBLE = """
import json, os, sys
import torch
from torch import nn
import memlab

DEVICE, AT = sys.argv[1:]
if DEVICE == "cuda":
    torch.cuda.init()
snapshot = memlab.MemorySnapshot(device=DEVICE)

def probe(name):
    if name == AT and step == 1:
        torch.empty(1 << 28, dtype=torch.uint8, device=DEVICE)  # line: probe

def at(name):
    def hook(_):
        probe(name)
    return hook

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1024, 1024, device=DEVICE))  # line: up_weight
    def forward(self, x):
        return x @ self.weight  # line: up

class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1024, 1024, device=DEVICE))  # line: down_weight
    def forward(self, x):
        return x @ self.weight  # line: down

step = 1
snapshot.start()
"""

END = """
snapshot.stop()
print(json.dumps(snapshot.peak()))
"""

MIB = 1 << 20


def labels(source):
    return {
        number: text.split("# line: ")[1]
        for number, text in enumerate(source.splitlines(), 1)
        if "# line: " in text
    }


def amount(size):
    return "scalar" if size <= 512 else f"{size / MIB:g}"


def table(peak, source, program):
    """What was live beside the probe, a row each: line, phase, how it is known, module,
    category, MiB.  cuBLAS keeps a workspace of the GPU's choice: its size is left out."""
    at = labels(source)
    found = set()
    for row in peak["by_line"]:
        assert row["file"] == str(program), row
        name = at.get(row["line"], row["line"])
        place = (name, row["phase"], row["how"], row["module"] or "-")
        for category, size in row["by_category"].items():
            if size and name != "probe":
                if category == "workspace":
                    found.add("workspace")
                    continue
                found.add(" ".join(map(str, (*place, category, amount(size)))))
    return found


@pytest.fixture
def check(request, tmp_path):
    """check(device, instant, body, rows): runs a program up to its end and compares the
    rows of what was live when it called probe(instant)."""
    def check(device, instant, body, rows):
        environment = None
        if device == "cuda":
            environment = request.getfixturevalue("device_environment")
        program = tmp_path / "program.py"
        program.write_text(PREAMBLE + body + END)
        done = warm.run(program, device, instant, env=environment, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        source, peak = program.read_text(), json.loads(done.stdout.splitlines()[-1])
        wanted = {" ".join(row.split()) for row in rows.splitlines() if row.strip()}
        found = table(peak, source, program)
        if device == "cuda":
            found.discard("workspace")
        assert found == wanted, done.stderr
        assert peak["unattributed_bytes"] == 0
        assert peak["by_category"]["unknown"] == 0
        return peak

    return check


BOTH = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
)

AMP = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
        self.down = Down()
    def forward(self, x):
        y = self.up(x)
        y = torch.sin(y)  # line: sin
        y.register_hook(at("backward"))
        return self.down(y)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(2):
    x = torch.ones(256, 1024, device=DEVICE)  # line: input
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = net(x).sum()  # line: sum
        probe("forward")
    loss.backward()  # line: pass
    optimizer.step()  # line: step
    optimizer.zero_grad()
"""


@BOTH
def test_casts_of_autocast(check, device):
    # Autocast keeps its copies of weights, 2 MiB each, until it ends; backward needs that
    # of `down` alone, and all that is multiplied: the copy of x, sin's result.
    start = """
        up_weight    other      frames  up    parameter        4
        down_weight  other      frames  down  parameter        4
        step         optimizer  frames  *     optimizer_state  8
        input        other      frames  -     input            1
        up           forward    frames  up    activation       1
        sum          forward    frames  -     activation       scalar
    """
    forward = """
        up           forward    frames  up    temporary        2
        sin          forward    frames  Net   activation       0.5
        down         forward    frames  down  activation       2
    """
    check(device, "forward", AMP, start + forward)
    # The gradient of the copy became one of the weight; `sin` waits for the other.
    backward = """
        pass         backward   frames  -     temporary        scalar
        down         backward   node    down  gradient         4
        down         backward   node    down  temporary        0.5
    """
    check(device, "backward", AMP, start + backward)


TIED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
        self.down = Down()
        self.down.weight = self.up.weight
    def forward(self, x):
        y = self.up(x)
        y = torch.sin(y)  # line: sin
        y.register_hook(at("between"))
        return self.down(y)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
net.up.weight.register_post_accumulate_grad_hook(at("sum"))
for step in range(2):
    x = torch.ones(256, 1024, device=DEVICE)  # line: input
    loss = net(x).sum()  # line: sum
    loss.backward()  # line: pass
    optimizer.step()  # line: step
    optimizer.zero_grad()
"""


@BOTH
def test_a_weight_that_two_modules_share(check, device):
    start = """
        up_weight    other      frames  up    parameter        4
        step         optimizer  frames  up    optimizer_state  4
        input        other      frames  -     input            1
        sum          forward    frames  -     activation       scalar
        pass         backward   frames  -     temporary        scalar
    """
    # The first use's share of the gradient waits, and has the second added in place.
    between = """
        up           forward    frames  up    activation       1
        down         backward   node    *     gradient         4
        down         backward   node    *     temporary        1
    """
    check(device, "between", TIED, start + between)
    check(device, "sum", TIED, start + "down backward node up gradient 4")


CUSTOM = """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)  # line: gate
        ctx.save_for_backward(x, gate)
        twice = gate + gate  # line: twice
        return x * gate  # line: product
    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        slope = 1 - gate  # line: slope
        probe("backward")
        slope = slope * x
        return gradient * gate * (1 + slope)  # line: result

class Act(nn.Module):
    def forward(self, x):
        return Swish.apply(x)  # line: apply

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
        self.act = Act()
    def forward(self, x):
        y = self.up(x)
        return self.act(y)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.up.weight.register_post_accumulate_grad_hook(at("end"))
for step in range(2):
    x = torch.ones(256, 1024, device=DEVICE)  # line: input
    y = net(x)
    loss = (y*y).sum()  # line: loss
    probe("forward")
    loss.backward()  # line: pass
    optimizer.step()  # line: step
    optimizer.zero_grad()
"""


@BOTH
def test_a_function_with_a_backward_of_its_own(check, device):
    start = """
        up_weight  other    frames  up   parameter   4
        input      other    frames  -    input       1
        product    forward  frames  act  activation  1
        loss       forward  frames  -    activation  scalar
    """
    saved = """
        up         forward  frames  up   activation  1
        gate       forward  frames  act  activation  1
    """
    check(device, "forward", CUSTOM, start + saved)
    # y * y has two shares of a gradient, one added to the other in place.
    start += "pass backward frames - temporary scalar"
    backward = """
        loss       backward  likely  -    temporary  1
        slope      backward  frames  act  temporary  1
    """
    check(device, "backward", CUSTOM, start + saved + backward)
    check(device, "end", CUSTOM, start + "\nup backward node up gradient 4")


CKPT = """
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
    def forward(self, x):
        y = torch.sin(x)  # line: sin
        y = self.up(y)
        if y.requires_grad:
            y.register_hook(at("inside"))
        y = torch.exp(y)  # line: exp
        if y.requires_grad:
            y.register_hook(at("result"))
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = Down()
        self.block = Block()
    def forward(self, x):
        y = self.down(x)
        return checkpoint(  # line: checkpoint
            self.block, y, use_reentrant=REENTRANT, preserve_rng_state=False
        )

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(2):
    x = torch.ones(256, 1024, device=DEVICE)  # line: input
    loss = net(x).sum()  # line: loss
    probe("forward")
    loss.backward()  # line: pass
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("reentrant", [False, True])
@BOTH
def test_checkpoints(check, device, reentrant):
    body = f"REENTRANT = {reentrant}\n{CKPT}"
    start = """
        up_weight    other     frames  block.up  parameter   4
        down_weight  other     frames  down      parameter   4
        input        other     frames  -         input       1
        down         forward   frames  down      activation  1
        loss         forward   frames  -         activation  scalar
    """
    # Of the block only what it was given; the sum needs nothing.
    check(device, "forward", body, start)
    # Recomputed: what mm and exp keep, and the gradient of exp where that came after.
    start += """
        pass         backward  frames  -         temporary   scalar
        sin          backward  frames  block     activation  1
    """
    if reentrant:
        check(device, "result", body, start + "exp backward frames block activation 1")
    else:
        exp = "exp backward likely block temporary 1"
        check(device, "inside", body, start + exp)


NESTED = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Sigmoid(), Up(), nn.Tanh())
    def forward(self, x):
        y = self.body(x)  # line: body
        return torch.sin(y)  # line: sin

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Softplus(), nn.ELU())])
    def forward(self, x):
        y = self.inner(x)
        for block in self.blocks:
            y = block(y)  # line: block
        y.register_hook(at("backward"))
        return torch.exp(y)  # line: exp

net = Outer()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.inner.body[1].weight.register_post_accumulate_grad_hook(at("end"))
for step in range(2):
    x = torch.ones(256, 1024, device=DEVICE, requires_grad=True)  # line: input
    loss = net(x).sum()  # line: loss
    probe("forward")
    loss.backward()  # line: pass
    optimizer.step()  # line: step
    optimizer.zero_grad()
"""


@BOTH
def test_modules_in_modules(check, device):
    start = """
        up_weight  other     frames  inner.body.1  parameter   4
        input      other     frames  -             input       1
        loss       forward   frames  -             activation  scalar
    """
    # Sigmoid, tanh and exp keep their results, softplus and elu what they are given.
    forward = """
        body       forward   frames  inner.body.*  activation  2
        sin        forward   frames  inner         activation  1
        block      forward   frames  blocks.0.0    activation  1
    """
    exp = "exp forward frames Outer activation 1"
    check(device, "forward", NESTED, start + forward + exp)
    start += "pass backward frames - temporary scalar\n"
    exp = "exp backward likely Outer temporary 1"
    check(device, "backward", NESTED, start + forward + exp)
    end = """
        body       forward   frames  inner.body.0  activation  1
        up         backward  node    inner.body.1  gradient    4
        up         backward  node    inner.body.1  temporary   1
    """
    check(device, "end", NESTED, start + end)


THREADS = """
import threading

barrier = threading.Barrier(2)

def turn(*_):
    barrier.wait(60)

def warm_up():
    # A workspace of cuBLAS is known by passes that it outlives.
    w = torch.ones(8, 8, device=DEVICE, requires_grad=True)
    (w @ w).sum().backward()
    del w
    turn()

def two_turns(_):
    turn()
    turn()

class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
    def forward(self, x):
        y = self.up(torch.sin(x))  # line: first_sin
        y.register_hook(two_turns)
        return torch.sigmoid(y)  # line: first_sigmoid

class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = Down()
    def forward(self, x):
        y = self.down(torch.exp(x))  # line: second_exp
        return torch.sigmoid(y)  # line: second_sigmoid

first, second = First(), Second()
inputs = {}

def train_first():
    warm_up()
    x = torch.ones(256, 1024, device=DEVICE, requires_grad=True)  # line: first_input
    inputs["first"] = x
    first(x).sum().backward()  # line: first_loss
    turn()

def train_second():
    warm_up()
    turn()
    x = torch.ones(256, 1024, device=DEVICE, requires_grad=True)  # line: second_input
    inputs["second"] = x
    loss = second(x).sum()  # line: second_loss
    probe("between")
    turn()
    turn()
    x.register_hook(at("end"))
    loss.backward()  # line: pass

threads = [threading.Thread(target=t) for t in (train_first, train_second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@BOTH
def test_two_threads_that_train(check, device):
    start = """
        up_weight       other     frames  First.up     parameter   4
        down_weight     other     frames  Second.down  parameter   4
        first_input     other     frames  -            input       1
        second_input    other     frames  -            input       1
        second_loss     forward   frames  -            activation  scalar
    """
    # The first's backward has come to the gradient of sigmoid.
    between = """
        first_sin       forward   frames  First        activation  1
        first_sigmoid   backward  likely  First        temporary   1
        first_loss      forward   frames  -            activation  scalar
        first_loss      backward  frames  -            temporary   scalar
        second_exp      forward   frames  Second       activation  1
        second_sigmoid  forward   frames  Second       activation  1
    """
    check(device, "between", THREADS, start + between)
    end = """
        first_sin       backward  likely  First        gradient    1
        up              backward  node    First.up     gradient    4
        second_exp      backward  likely  Second       gradient    1
        down            backward  node    Second.down  gradient    4
        pass            backward  frames  -            temporary   scalar
    """
    check(device, "end", THREADS, start + end)


# Spares trials of what the processor can do, each with an import of torch, and processes
# that stand by to compile.
QUICK = """
import torch._inductor.config
torch._inductor.config.cpp.vec_isa_ok = False
torch._inductor.config.compile_threads = 1
"""
COMPILE = """
import gc

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = Up()
        self.down = Down()
    def forward(self, x):  # line: compiled
        y = self.up(x)
        y = torch.sin(y)
        y = torch.sigmoid(y)  # line: sigmoid
        return self.down(y)

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net, backend=BACKEND)
net.down.weight.register_post_accumulate_grad_hook(at("backward"))
for step in range(2):
    gc.collect()  # compiling leaves cycles that hold the first step's tensors
    x = torch.ones(256, 1024, device=DEVICE)  # line: input
    loss = compiled(x).sum()  # line: call
    probe("forward")
    loss.backward()  # line: pass
    optimizer.step()  # line: step
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend, module", [("inductor", "Net"), ("aot_eager", "GraphModule")]
)
def test_compiled_modules(check, tmp_path, backend, module):
    if backend == "inductor":
        compiler = os.environ.get("CXX") or "c++"
        if shutil.which(compiler) is None:
            pytest.skip(f"torch.compile needs a C++ compiler: {compiler} not found")
    cache = str(tmp_path / "cache")
    body = f"os.environ['TORCHINDUCTOR_CACHE_DIR'] = {cache!r}\n"
    if backend == "inductor":
        body += QUICK
    body += f"BACKEND = {backend!r}\n{COMPILE}"
    start = """
        up_weight    other    frames  up    parameter   4
        down_weight  other    frames  down  parameter   4
        input        other    frames  -     input       1
        call         forward  frames  -     activation  scalar
    """
    # What sin and `down` were given.  Inductor says which lines its code was made of; else
    # one graph has one line, that of its function.
    forward = f"compiled forward frames {module} activation 2"
    if backend == "inductor":
        forward = """
            up           forward  frames  Net  activation  1
            sigmoid      forward  frames  Net  activation  1
        """
    check("cpu", "forward", body, start + forward)
    pass_ = "pass  backward  frames  -  temporary  scalar\n"
    # Its backward is one node.
    backward = "compiled  backward  node  *  gradient  8"
    if backend == "inductor":
        backward = """
            up           backward  frames  up    gradient  4
            down         backward  frames  down  gradient  4
        """
    check("cpu", "backward", body, start + pass_ + backward)
