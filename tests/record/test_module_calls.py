"""Who owns the memory of models that are gone when the recording is read, and what a batch
is: bytes worked out by hand, on torch's CPU allocator and on a GPU."""

import json
import sys

import pytest
import warm

PREAMBLE = """
import copy, ctypes, gc, json, threading
import torch
from torch import nn
import memlab

DEVICE = {device!r}
MIB = 1 << 20

class Net(nn.Module):
    "Weights of 1 MiB, the second's half of that; no biases."
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 512, bias=False)
        self.down = nn.Linear(512, 256, bias=False)
        self.register_buffer("scale", torch.ones(512, 512))  # 1 MiB
    def forward(self, x):
        return self.down(torch.relu(self.up(x) * self.scale[0]))

def batch(rows=512):
    return torch.ones(rows, 512, device=DEVICE)  # 1 MiB

def recorded(main):
    "What was there at the peak of main(), of which nothing is left."
    snapshot = memlab.MemorySnapshot(device=DEVICE)
    with snapshot:
        main()
        gc.collect()
    return snapshot.peak()

def told(peak):
    modules = {{row["module"]: row["bytes"] for row in peak["by_module"] if row["module"]}}
    print(json.dumps([{{k: v for k, v in peak["by_category"].items() if v}}, modules]))
"""


def answers(program, device="cpu"):
    done = warm.run(PREAMBLE.format(device=device) + program, options=("-W", "error"))
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


MIB = 1 << 20

INFERENCE = """
def main():
    net = Net().to(DEVICE)
    x = batch()
    with torch.{mode}():
        kept = net(x)
        last = torch.empty(4096, 1024, device=DEVICE)  # 16 MiB: the peak
told(recorded(main))
"""


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "enable_grad"])
def test_a_model_inside_a_function(torch, mode):
    [(categories, modules)] = answers(INFERENCE.format(mode=mode))
    assert categories["parameter"] == 3 * MIB // 2
    assert categories["buffer"] == MIB
    assert categories["input"] == MIB
    assert modules["up"] >= MIB
    assert modules["down"] >= MIB // 2
    assert modules["Net"] >= MIB


@pytest.mark.cuda
def test_a_model_inside_a_function_on_a_gpu(phantom_run):
    done = phantom_run(
        PREAMBLE.format(device="cuda:0").replace(
            "MemorySnapshot(device=DEVICE)", "MemorySnapshot()"
        )
        + "torch.cuda.init()\n"
        + INFERENCE.format(mode="no_grad")
    )
    [categories, modules] = json.loads(done.stdout)
    assert categories["parameter"] == 3 * MIB // 2
    assert categories["buffer"] == MIB
    assert categories["input"] == MIB
    assert modules["up"] >= MIB


def test_training_by_hand_inside_a_function(torch):
    [(categories, modules)] = answers("""
def main():
    net = Net()
    ema = [p.detach().clone() for p in net.parameters()]
    seen = torch.zeros(512, 512)
    for step in range(3):
        x = batch()
        target = torch.zeros(512, 256)
        loss = nn.MSELoss()(net(x), target)
        seen = seen + 1
        loss.backward()
        del loss
        last = torch.empty(4096, 1024)
        del last
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None
told(recorded(main))
""")
    assert categories["parameter"] == 3 * MIB // 2
    assert categories["gradient"] == 3 * MIB // 2
    assert categories["input"] == 3 * MIB // 2  # x, and the target of a loss module
    assert categories["other"] == 3 * MIB // 2 + MIB  # the copies, and the sum
    assert modules["up"] >= 2 * MIB


CALLS = {
    # Nothing is freed or made between two calls: all batches are there before the first.
    "in a loop": "kept = [net(x) for x in data]",
    "by name": "kept = [net(x=x) for x in data]",
    "in a function": "kept = list(map(infer, data))",
    "no outer frame": "kept = list(map(net, data))",
    "a view": "kept = [net(x.view(512, 512)) for x in data]",
    "a view by name": "kept = [net(x=x.view(512, 512)) for x in data]",
    "popped": "kept = [net(data.pop(0).detach()) for _ in range(4)]",
    "in a container": "kept = [wrap({'x': [x.detach()]}) for x in data]",
}
# What is given is at one address each time; CPython 3.13 has nothing else to tell by.
ONE_ADDRESS = {"by name", "a view", "a view by name", "popped", "in a container"}


@pytest.mark.parametrize("call", CALLS)
def test_the_batch_of_every_call_from_one_line(torch, call):
    [(categories, _)] = answers(f"""
class Wrap(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, given):
        return self.net(given["x"][0])

def main():
    net = Net()
    wrap = Wrap(net)
    def infer(x):
        return net(x)
    data = [batch() for _ in range(4)]
    held = list(data)
    with torch.no_grad():
        {CALLS[call]}
        last = torch.empty(4096, 1024)
told(recorded(main))
""")
    told_apart = sys.version_info < (3, 13) or call not in ONE_ADDRESS
    assert categories["input"] == 4 * MIB or not told_apart


def test_arguments_that_a_call_replaced_are_not_read(torch):
    """Of another tool's _wrapped_call_impl neither signature nor locals are as torch's."""
    [[kept]] = answers("""
def replaced(self, *args, **kwargs):
    given, kwargs = kwargs, "text"
    def inner():
        return kwargs
    return self._call_impl(*args, **given)

def short(self, x):
    return self._call_impl(x)

done = 0
for function in (replaced, short):
    nn.Module._wrapped_call_impl = function
    nn.Module.__call__ = function
    net = Net()
    data = [batch() for _ in range(4)]
    with memlab.MemorySnapshot(device="cpu"):
        done += len([net(x) for x in data])
print(json.dumps([done]))
""")
    assert kept == 8


def test_other_is_what_no_rule_names(torch):
    """The same memory, made by the same line, is input where a model gets it."""
    found = answers("""
def main(give):
    net = Net()
    for step in range(2):
        a, b = batch(), batch()
        net(a + 1 if not give else a)
        torch.empty(4096, 1024)
for give in (False, True):
    told(recorded(lambda: main(give)))
""")
    (without, _), (given, _) = found
    assert without["other"] - given.get("other", 0) == MIB
    assert given["input"] == MIB


def test_batches_of_every_step_in_containers(torch):
    [(categories, _)] = answers("""
from dataclasses import dataclass

@dataclass
class Batch:
    ids: object

class Model(Net):
    def forward(self, batch, more=None):
        return super().forward(batch["x"][0].ids + more)

def main():
    net = Model()
    for step in range(3):
        x = {"x": (Batch(batch()),)}
        more = batch()
        kept = net(x, more=more)
        last = torch.empty(4096, 1024)
        del last
told(recorded(main))
""")
    assert categories["input"] == 2 * MIB


def test_what_functions_make_of_weights_is_no_batch_of_the_loss(torch):
    [(categories, _)] = answers("""
def main():
    weight = torch.ones(512, 256, requires_grad=True)
    out = batch() @ weight
    target = torch.zeros(512, 256)
    loss = nn.MSELoss()(out, target)
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["input"] == MIB // 2  # the target


def test_what_models_make_is_no_batch_of_the_next(torch):
    [(categories, _)] = answers("""
def main():
    first, second = Net(), nn.Linear(256, 512, bias=False)
    x = batch()
    with torch.no_grad():
        hidden = first(x)
        kept = second(hidden)
        last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["input"] == MIB
    assert categories["parameter"] == 2 * MIB


@pytest.mark.parametrize(
    "call",
    [
        "torch.compile(net, fullgraph=True, backend='eager')(x)",
        "torch.jit.trace(net, x)(x)",
        "torch.func.functional_call(net, {}, (x,))",
        "torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)",
        "nn.Sequential(nn.Identity(), net)(x)",
        "net.forward(x)",
        "nn.DataParallel(net)(x)",
    ],
)
def test_however_it_is_called(torch, call):
    [(categories, _)] = answers(f"""
import torch.utils.checkpoint, warnings
warnings.simplefilter("ignore")

def main():
    net = Net()
    x = batch()
    kept = {call}
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["parameter"] == 3 * MIB // 2
    assert categories["buffer"] == MIB


def test_copies_are_modules_too(torch):
    [(categories, modules)] = answers("""
def main():
    net = Net()
    average = copy.deepcopy(net)
    net(batch())
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["parameter"] == 3 * MIB
    assert "other" not in categories
    assert modules["Net.up"] >= MIB
    assert modules["Net#2.up"] >= MIB


def test_parameters_that_change(torch):
    """Lazy ones, other types, and modules that come later."""
    found = answers("""
def lazy():
    net = nn.Sequential(nn.LazyLinear(512, bias=False), nn.LazyLinear(256, bias=False))
    kept = net(batch())
    last = torch.empty(4096, 1024)

def moved():
    net = Net().double()
    net(batch().double())
    net.float()
    kept = net(batch())
    last = torch.empty(4096, 1024)

def grown():
    net = Net()
    net(batch())
    net.more = nn.Linear(512, 512, bias=False)
    net.more(batch())
    last = torch.empty(4096, 1024)
import warnings
warnings.simplefilter("ignore")
for main in (lazy, moved, grown):
    told(recorded(main))
""")
    assert [categories["parameter"] for categories, _ in found] == [
        3 * MIB // 2, 3 * MIB // 2, 5 * MIB // 2
    ]  # fmt: skip
    assert found[2][1]["more"] >= MIB


def test_two_recordings_and_threads(torch):
    found = answers("""
def train():
    for _ in range(20):
        net = Net()
        net(batch())

one, two = memlab.MemorySnapshot(device="cpu"), memlab.MemorySnapshot(device="cpu")
one.start()
two.start()
threads = [threading.Thread(target=train) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
one.stop()
told(two.peak())
two.stop()
told(one.peak())
""")
    for categories, modules in found:
        assert categories["parameter"] >= 3 * MIB // 2
        assert "Net" in str(modules)


def test_nothing_of_it_stays(torch):
    """No model lives longer, and torch is as it was once the last recording ended."""
    [[before, during, after, forgotten, dead]] = answers("""
import weakref
# Of torch.Tensor, a PyTypeObject: tp_alloc is its 39th word.
slot = ctypes.c_void_p.from_address(id(torch.Tensor) + 38 * ctypes.sizeof(ctypes.c_void_p))
states = [slot.value]
snapshot = memlab.MemorySnapshot(device="cpu").start()
states.append(slot.value)
net = Net()
net(batch())
reference = weakref.ref(net)
weight = weakref.ref(net.up.weight)
del net
dead = reference() is None and weight() is None
snapshot.stop()
states.append(slot.value)
snapshot = memlab.MemorySnapshot(device="cpu").start()
del snapshot
gc.collect()
states.append(slot.value)
print(json.dumps([*states, dead]))
""")
    assert during != before
    assert after == before
    assert forgotten == before
    assert dead


def test_another_tool_in_the_same_place(torch):
    """It is left there, and calls what it found: of ours neither gets the other's again."""
    [[seen, left, after, same]] = answers("""
slot = ctypes.c_void_p.from_address(id(torch.Tensor) + 38 * ctypes.sizeof(ctypes.c_void_p))
own = slot.value
kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
calls = 0

def tool(type, items):
    global calls
    calls += 1
    return found(type, items)

first = memlab.MemorySnapshot(device="cpu").start()
found, wrapper = kind(slot.value), kind(tool)
address = ctypes.cast(wrapper, ctypes.c_void_p).value
slot.value = address
first.stop()
left = slot.value == address
second = memlab.MemorySnapshot(device="cpu").start()
kept = Net()(batch())
seen = calls > 0
second.stop()
after = slot.value == address
slot.value = own
memlab.MemorySnapshot(device="cpu").start().stop()
print(json.dumps([seen, left, after, slot.value == own]))
""")
    assert seen and left and after and same


def test_hooks_and_states_of_modules_are_as_they_were(torch):
    [[same]] = answers("""
import pickle
from torch.nn.modules import module
def seen(net):
    return [sorted(vars(net)), list(net.state_dict()), len(module._global_forward_pre_hooks),
            module.Module.__call__ is original]
original = module.Module.__call__
net = Net()
before = seen(net)
with memlab.MemorySnapshot(device="cpu"):
    net(batch())
    again = pickle.loads(pickle.dumps(net))
    during = seen(net)
print(json.dumps([before == during == seen(net) == seen(again)]))
""")
    assert same


def test_what_an_object_holds_besides_a_batch_is_none(torch):
    """A state has averages too; a mapping has its data."""
    [(categories, _)] = answers("""
import collections

class State:
    pass

class Model(Net):
    def forward(self, batch):
        return super().forward(batch["state"].x + batch["x"])

def main():
    net = Model()
    state = State()
    state.x = batch()
    state.average = [torch.zeros(512, 512) for _ in range(3)]
    given = collections.UserDict({"state": state, "x": batch()})
    given.more = torch.zeros(512, 512)
    kept = net(given)
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["input"] == MIB
    assert categories["other"] >= 5 * MIB


def test_weights_in_a_list_are_no_batch(torch):
    """An argument that requires a gradient is one, as for an adversarial example."""
    [(categories, _)] = answers("""
class Penalty(nn.Module):
    def forward(self, values, scale):
        return sum(value.pow(2).sum() for value in values) * scale[0, 0]

def main():
    hand = [torch.ones(512, 512, requires_grad=True) for _ in range(3)]
    scale = batch().requires_grad_()
    kept = Penalty()(hand, scale)
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["input"] == MIB


def test_weights_that_functions_made_are_no_parameters(torch):
    [(categories, _)] = answers("""
def main():
    net = Net()
    fast = {name: weight + 0.0 for name, weight in net.named_parameters()}
    kept = torch.func.functional_call(net, fast, (batch(),))
    last = torch.empty(4096, 1024)
told(recorded(main))
""")
    assert categories["parameter"] == 3 * MIB // 2
