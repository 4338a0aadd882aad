"""Which torch.nn.Module an allocation was made in, by the paths of named_modules(), on
real nets and torch's CPU allocator."""

import pickle

import pytest
import warm

pytestmark = pytest.mark.usefixtures("torch")

PREAMBLE = """
import gc, pickle
import torch
from torch import nn
import memlab

OUT = {out!r}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.act = nn.Sigmoid()
    def forward(self, x):
        return self.act(self.fc(x))

class Net(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.h = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.head(x)

x = torch.randn(4, 8)

def paths(model):
    "The paths of modules that are called, as torch has them."
    return [p or type(m).__name__ for p, m in model.named_modules()
            if not isinstance(m, nn.ModuleList)]
snapshot = memlab.MemorySnapshot(device="cpu")
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program that ends with a call of done(), and returns what it gave done()
    and the chains of modules of the recorded stacks, innermost first."""

    def run(body):
        out = str(tmp_path / "out")
        end = """
def done(*answers):
    snapshot.stop()
    snapshot.save(OUT + ".pickle")
    pickle.dump(answers, open(OUT, "wb"))
"""
        program = PREAMBLE.format(out=out) + end + body
        done = warm.run(program, options=("-W", "error:memlab"))
        assert done.returncode == 0, done.stdout + done.stderr
        with open(out, "rb") as file:
            answers = pickle.load(file)
        with open(out + ".pickle", "rb") as file:
            saved = pickle.load(file)
        places = saved["memlab"].get("modules", [])[1::2]
        chains = {tuple(p for _, p in sorted(place.items())) for place in places}
        return answers, chains

    return run


def names(chains):
    return {name for chain in chains for name in chain}


def test_paths_are_those_of_named_modules(run):
    (want,), chains = run("""
snapshot.start()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(x).sum().backward()
optimizer.step()
done(paths(model))
""")
    assert names(chains) == set(want)
    assert ("h.1.fc", "h.1", "Net") in chains
    assert ("head", "Net") in chains


def test_a_number_alone_is_no_name(run):
    (want,), chains = run("""
model = nn.Sequential(nn.Linear(8, 8), Block())
snapshot.start()
model(x)
done([p and "Sequential." + p or "Sequential" for p, _ in model.named_modules()])
""")
    assert names(chains) == set(want)


def test_a_model_made_before_and_one_deleted_before_it_is_read(run):
    _, chains = run("""
model = Net(1)
snapshot.start()
model(x)
del model
gc.collect()
done()
""")
    # Named at the start.
    assert names(chains) == {"Net", "h.0", "h.0.fc", "h.0.act", "head"}


def test_addresses_given_out_again_do_not_rename(run):
    (addresses,), chains = run("""
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
    def forward(self, x):
        return self.one(x)

class Second(First):
    def __init__(self):
        nn.Module.__init__(self)
        self.two = nn.Linear(8, 8)
    def forward(self, x):
        return self.two(x)

snapshot.start()
addresses = []
for kind in (First, Second) * 20:
    model = kind()
    addresses.append(id(next(model.children())))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    from memlab import _core
    _core.name_modules(nn.Module)
    model(x)
    del model, optimizer
    gc.collect()
done(addresses)
""")
    assert len(set(addresses)) < len(addresses), "no address came back"
    assert chains == {("one", "First"), ("two", "Second")}


def test_modules_that_nobody_could_name_say_their_class(run):
    _, chains = run("""
snapshot.start()
def once():
    return nn.Sigmoid()(x)
once()
gc.collect()
done()
""")
    assert chains == {("<Sigmoid>",)}


def test_several_models_are_told_apart(run):
    _, chains = run("""
class Generator(Net): pass
class Discriminator(Net): pass
first, second, critic = Generator(1), Generator(1), Discriminator(1)
loss = nn.MSELoss()
snapshot.start()
loss(critic(x), first(x) + second(x))
done()
""")
    assert {chain[-1] for chain in chains} == {
        "Generator",
        "Generator#2",
        "Discriminator",
        "MSELoss",
    }
    assert ("Generator#2.h.0.fc", "Generator#2.h.0", "Generator#2") in chains


def test_a_loss_beside_the_model_changes_no_path(run):
    _, chains = run("""
model, loss = Net(1), nn.MSELoss()
snapshot.start()
loss(model(x), torch.zeros(4, 3))
done()
""")
    assert names(chains) == {"Net", "h.0", "h.0.fc", "h.0.act", "head", "MSELoss"}


def test_shared_and_nested_calls(run):
    (want,), chains = run("""
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = self.a
    def forward(self, x):
        return self.b(self.a(x))
model = Twice()
snapshot.start()
model(x)
done(paths(model))
""")
    assert names(chains) == set(want) == {"Twice", "a"}


def test_checkpointing_and_data_parallel(run):
    _, chains = run("""
from torch.utils.checkpoint import checkpoint
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Block()
    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)
model = nn.DataParallel(Outer())
snapshot.start()
model(x).sum().backward()
done()
""")
    inner = ("module.inner.fc", "module.inner")
    # In the forward below the whole model; recomputed in the backward, below none.
    assert (*inner, "module", "DataParallel") in chains
    assert inner in chains


def test_a_wrapper_is_not_a_level(run):
    _, chains = run("""
model = torch.compile(Net(1), backend="eager", disable=True)
wrapped = torch._dynamo.eval_frame.OptimizedModule(model, lambda f: f)
snapshot.start()
wrapped(x)
done()
""")
    assert "h.0.fc" in names(chains)
    assert not any("_orig_mod" in name for name in names(chains))


def test_modules_that_the_collector_does_not_list(run):
    """Those before gc.freeze() are met through what holds them."""
    _, chains = run("""
model = nn.Sequential(*(Net(3) for _ in range(400)))
gc.freeze()
model = nn.ModuleDict({"all": model})
snapshot.start()
model["all"][399](x)
done()
""")
    assert ("all.399.h.2.fc", "all.399.h.2", "all.399") in chains


@pytest.mark.parametrize("begun", ["before", "after"])
def test_a_frozen_model_that_nothing_newer_holds(run, begun):
    """gc.freeze() hides it from gc.get_objects(); it stays as it was."""
    (frozen,), chains = run(f"""
begun = {begun!r}
if begun == "before":
    snapshot.start()
model = Net()
gc.freeze()
frozen = gc.get_freeze_count()
assert not any(isinstance(o, nn.Module) for o in gc.get_objects())
if begun == "after":
    snapshot.start()
model(x)
from memlab import _core
_core.name_modules(nn.Module)
snapshot.data()
done(frozen - gc.get_freeze_count())
""")
    # Some few of what was frozen has died since, and nothing was let go.
    assert 0 <= frozen < 1000
    assert ("h.1.fc", "h.1", "Net") in chains
    assert names(chains) == {"Net", "h.0", "h.0.fc", "h.0.act", "h.1", "h.1.fc",
                             "h.1.act", "head"}


def test_modules_of_every_age_and_a_look_from_inside_a_collection(run):
    (looks,), chains = run("""
from memlab import _core

def make(name):
    return type(name, (Net,), {})(1)

models = [make("Frozen")]
gc.collect()
gc.freeze()
models.append(make("Old"))
gc.collect()
models.append(make("Middle"))
gc.collect(0)
gc.disable()
models.append(make("Young"))
snapshot.start()
for model in models:
    model(x)

looks = []
class Final:
    def __del__(self):
        models.append(make("Inside"))
        looks.append(_core.name_modules(nn.Module))
final = Final()
final.itself = final
del final
gc.collect()
models[-1](x)
done(len(looks))
""")
    assert looks == 1
    for name in ("Frozen", "Old", "Middle", "Young", "Inside"):
        assert (f"{name}.h.0.fc", f"{name}.h.0", name) in chains


def test_the_parameters_of_a_frozen_model_are_known(run):
    (answer,), _ = run("""
snapshot.start()
model = Net()
optimizer = torch.optim.Adam(model.parameters())
model(x).sum().backward()
optimizer.step()
gc.freeze()
peak = memlab.MemorySnapshot(device="cpu").start()
kept = torch.zeros(1000)
peak.stop()
by_category = peak.peak()["by_category"]
done((by_category["parameter"], by_category["optimizer_state"],
      sum(p.nbytes for p in model.parameters())))
""")
    parameters, state, size = answer
    assert parameters >= size
    assert state >= 2 * size


@pytest.mark.cuda
def test_parameters_and_buffers_can_still_be_swapped(phantom_run):
    """torch swaps them in place unless somebody has weak references, by which nobody may
    know them: neither recordings nor line profilers, nor reporters.  What was swapped is
    known as before."""
    phantom_run("""
import gc
import memlab, torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 1024), nn.BatchNorm1d(1024)).cuda()
optimizer = torch.optim.SGD(model.parameters())
reporter = memlab.MemReporter(model)

def step():
    x = torch.ones(2, 512, device="cuda", dtype=model[0].weight.dtype)
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

def known():
    rows = {r["name"]: r["used_bytes"] for r in reporter.stats("cuda")[0]["rows"]}
    peak = snapshot.peak()
    modules = {m["module"]: m["bytes"] for m in peak["by_module"]}
    return rows["0.weight"], rows["1.running_mean"], modules, peak["by_category"]

snapshot = memlab.MemorySnapshot().start()
profiler = memlab.LineProfiler(step)
with profiler:
    step()
assert known()[:2] == (2 << 20, 4096), known()
before = [id(t) for t in (*model.parameters(), *model.buffers())]
gc.collect()  # of the autograd graph, which refers to parameters
torch.__future__.set_swap_module_params_on_conversion(True)
model.double()
model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()})
torch.__future__.set_swap_module_params_on_conversion(False)
after = [id(t) for t in (*model.parameters(), *model.buffers())]
assert after[:4] == before[:4] and model[0].weight.dtype == torch.float64
snapshot.stop()
snapshot = memlab.MemorySnapshot().start()
step()
weight, mean, modules, categories = known()
assert (weight, mean) == (4 << 20, 8192), (weight, mean)
# Weight and bias, and their gradients; the norm's weight and bias, and theirs.
assert categories["parameter"] == (4 << 20) + 3 * 8192, categories
# The peak is at the end, or from torch 2.15 on, which takes cuBLAS's workspace for each
# product alone, before the bias's gradient is made.
later = categories["parameter"] - categories["gradient"]
assert later in (0, 8192), categories
assert modules["Sequential.0"] >= 2 * ((4 << 20) + 8192) - later, modules
""", warm=True)


def test_no_code_of_a_module_runs(run):
    _, chains = run("""
class Hostile(Net):
    def __getattr__(self, name):
        if armed and name != "_compiled_call_impl":
            raise SystemExit(name)
        return super().__getattr__(name)
    def __eq__(self, other): raise SystemExit("eq")
    __hash__ = None
    def named_modules(self, *args): raise SystemExit("named_modules")
    @property
    def __class__(self): return Net
armed = False
model = Hostile(1)
armed = True
from memlab import _core
_core.name_modules(nn.Module)
armed = False
snapshot.start()
model(x)
done()
""")
    assert ("h.0.fc", "h.0", "Hostile") in chains
