"""MemProfiler on a module whose figures are worked out by hand, trained by a loop that
calls it as Lightning does; prints one JSON object."""

import copy
import json
import os
import pickle
import sys
import threading
import types
import warnings
from pathlib import Path

import torch
from torch import nn

from memlab.callbacks import npp_hooks
from memlab.callbacks._memprofiler.config import (
    MemProfilerCfg,
    MemProfilerSchedule,
)
from memlab.callbacks._memprofiler.profiler import MemProfiler
from memlab.callbacks._memprofiler.profiler_hooks import ProfilerHooksMixin

found = {}
device = sys.argv[1]

# The ranks of a run may be forked after it is configured.
MemProfilerCfg(enabled=True)
child = os.fork()
if child == 0:
    os._exit(torch.cuda._is_in_bad_fork())
found["bad_fork"] = bool(os.waitpid(child, 0)[1])


class Model(ProfilerHooksMixin, nn.Module):
    def __init__(self, cfg=None):
        super().__init__(memprofiler_cfg=cfg)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.depth = 0
        self.inside = lambda: None
        self.to(device)

    @MemProfiler.memprofilable
    def training_step(self, x):
        """What it does."""
        self.inside()
        return self.net(x).sum()

    @MemProfiler.memprofilable
    def validation_step(self, x):
        return self.net(x).sum()

    @MemProfiler.memprofilable
    def recurses(self, x, depth):
        self.net(x)
        if depth:
            self.recurses(x, depth - 1)
        return self.net(x)

    @MemProfiler.memprofilable
    def fails(self):
        raise KeyError("of the program")


def model(folder, begin=True, **options):
    made = Model(MemProfilerCfg(enabled=True, save_dir=folder, **options))
    made._trainer = types.SimpleNamespace(log_dir=None, default_root_dir=".")
    if begin:
        made.setup("fit")
    return made


def batch():
    return torch.ones(8, 16, device=device)


def marks(module):
    """All that hooks may leave on modules."""
    return [
        (sorted(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks))
        for m in module.modules()
    ]


def handles(module):
    return sum(map(len, module.memprofiler._state.hook_handles.values()))


def keys(module):
    return sorted(module.memprofiler.memory_stats)


def files(folder):
    return sorted(p.name for p in Path(folder).iterdir())


# Four calls by default.
net = model("defaults")
before = marks(net)
seen = found["defaults"] = {"handles": [], "reset": []}
for _ in range(4):
    net.training_step(batch()).backward()
    seen["handles"].append(handles(net))
    here = [
        {n: v for n, v in vars(m).items() if n[:4] in ("npp_", "rss_")}
        for m in net.modules()
    ]
    same = all(each == here[0] and not any(each.values()) for each in here)
    seen["reset"] += (list(here[0]) or [None]) if same else [here]
seen["keys"] = keys(net)
seen["clean"] = marks(net) == before
seen["enabled"] = net.memprofiler_cfg.enable_memory_hooks
seen["done"] = net.memprofiler._state.done_prof_funcs
seen["indices"] = list(net.memprofiler._state.snap_indices.values())
seen["stats"] = {k: dict(v) for k, v in net.memprofiler.memory_stats.items()}
seen["early_files"] = files("defaults")
net.on_train_end()
seen["files"] = files("defaults")
seen["yaml"] = Path("defaults/rank_0_memory_stats.yaml").read_text()
seen["mode"] = oct(os.stat("defaults/rank_0_memory_stats.yaml").st_mode & 0o777)
seen["name"] = [Model.training_step.__name__, Model.training_step.__doc__]

# Copies of the model while a call is profiled, and what comes after.
net = model("copies")
copies = []


def copy_it():
    if net.memprofiler._state.collecting:
        net.inside = None  # a lambda: pickle's matter, not ours
        copies.append(copy.deepcopy(net))
        copies.append(pickle.loads(pickle.dumps(net)))
        net.inside = copy_it


net.inside = copy_it
for _ in range(3):
    net.training_step(batch())
found["copies"] = {
    "equal": [
        all(
            torch.equal(a.cpu(), b.cpu())
            for a, b in zip(net.parameters(), c.parameters())
        )
        for c in copies
    ],
    "profiles": [
        c.memprofiler.module is c and not c.memprofiler.memory_stats for c in copies
    ],
}
for c in copies:
    c.net(batch())  # with hooks of a call that has ended

# Functions that take turns.
net = model("turns", collect_funcs={"default": ["training_step", "validation_step"]})
for _ in range(4):
    net.training_step(batch())
for _ in range(2):
    net.validation_step(batch())
    net.training_step(batch())
found["turns"] = keys(net)

# A call within itself; the inner one is the second, and collected.
net = model("recursion", collect_funcs={"default": {"recurses"}})
net.recurses(batch(), 1)
found["recursion"] = keys(net)
net = model(
    "nested",
    collect_funcs={"default": {"recurses"}},
    schedule={"warmup_iters": 0, "max_iter": 2},
)
net.recurses(batch(), 1)
found["nested"] = {k: v["npp_diff"] for k, v in net.memprofiler.memory_stats.items()}
found["under_way"] = [net.memprofiler._state.collecting]

# Threads, each in a call of its own at the same time.
net = model("threads", schedule=MemProfilerSchedule(warmup_iters=0, max_iter=4))
together = threading.Barrier(4)
net.inside = together.wait
threads = [
    threading.Thread(target=net.training_step, args=(batch(),)) for _ in range(4)
]
[t.start() for t in threads]
[t.join() for t in threads]
found["threads"] = {k: v["npp_diff"] for k, v in net.memprofiler.memory_stats.items()}

# Exceptions pass, and leave their figures, also on disk.
net = model("fails", collect_funcs={"default": {"fails"}})
raised = []
for _ in range(2):
    try:
        net.fails()
    except KeyError as error:
        raised.append(str(error))
found["fails"] = {"raised": raised, "keys": keys(net), "files": files("fails")}

# Both ways to call the contexts; the hooks of what was not asked for.
net = model("contexts", schedule={"warmup_iters": 0})
profiler = net.memprofiler
with MemProfiler.memprofile_ctx(profiler, fn_name="training_step"):
    with profiler.memprofile_snap_ctx("training_step"):
        found["key"] = profiler.gen_snap_keys("training_step", "end")
found["contexts"] = keys(net)
net = model("alone")
for _ in range(3):
    with net.memprofiler.memprofile_snap_ctx("training_step"):
        net.net(batch())
found["alone"] = keys(net)
net = model("direct")
for _ in range(3):
    for context in "start", "end":
        net.memprofiler.update_collect_state("training_step", context)
        net.memprofiler.snap("training_step", context, reset_mem_hooks=context == "end")
found["direct"] = keys(net)


# What was saved in the repeated forward pass of a checkpoint, in autograd's thread.
class Checkpointed(Model):
    @MemProfiler.memprofilable
    def training_step(self, x):
        out = torch.utils.checkpoint.checkpoint(self.net, x, use_reentrant=False)
        out.sum().backward()


net = Checkpointed(MemProfilerCfg(enabled=True, save_dir="checkpoint"))
net.setup("fit")
net.training_step(batch())
net.training_step(batch())
found["checkpoint"] = net.memprofiler.memory_stats["0.training_step.2.end"]["npp_diff"]

# Compiled, and with no break in its graph.
net = model("compiled")
net.net = torch.compile(net.net, backend="eager", fullgraph=True)
for _ in range(4):
    net.training_step(batch()).backward()
found["compiled"] = net.memprofiler.memory_stats["0.training_step.2.end"]["npp_diff"]



# In place, and first in the collected call, with a hook that no graph takes.
def untraceable(module, args):
    untraceable.calls += isinstance(module, nn.Sequential | nn.Linear)
    os.getpid()


untraceable.calls = 0
torch._dynamo.reset()
net = model(
    "compiled_in_place",
    schedule={"warmup_iters": 0},
    memory_hooks={"pre_forward_hooks": [untraceable]},
)
net.net.compile(backend="eager", fullgraph=True)
net.training_step(batch()).backward()
found["compiled_in_place"] = [
    net.memprofiler.memory_stats["0.training_step.1.end"]["npp_diff"],
    untraceable.calls,
]

# The function itself, where nothing may be left out of its graph.
torch._dynamo.reset()
net = model("one_graph", schedule={"warmup_iters": 0})
step = torch.compile(lambda x: net.training_step(x), backend="eager", fullgraph=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    step(batch()).backward()
told = [str(w.message) for w in caught if "memlab" in str(w.message)]
found["one_graph"] = [keys(net), told]


class Derived(Model):
    @MemProfiler.memprofilable
    def training_step(self, x):
        return super().training_step(x)


net = Derived(
    MemProfilerCfg(
        enabled=True, save_dir="super", schedule={"warmup_iters": 0, "max_iter": 9}
    )
)
net.setup("fit")
for _ in range(2):
    net.training_step(batch()).backward()
found["super"] = {
    k: v["npp_diff"] for k, v in net.memprofiler.memory_stats.items() if "end" in k
}

# Hooks that fail in the midst of a forward pass.
net = model("hooks_fail")
host_memory = npp_hooks.host_memory


def fail():
    raise OSError("too many open files")


def begin_to_fail():
    if net.memprofiler._state.collecting:
        npp_hooks.host_memory = fail


def works_again(module, args, output):
    npp_hooks.host_memory = host_memory


net.inside = begin_to_fail
net.net.register_forward_hook(works_again)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        net.training_step(batch()).backward()
found["hooks_fail"] = [keys(net), [str(w.message) for w in caught]]


# What fails is told once, and never raised.
def broken(module, attributes):
    raise OSError("no reset")


hooks = {"reset_state_hooks": [broken]}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    net = model(
        "broken", memory_hooks=hooks, schedule={"warmup_iters": 0, "max_iter": 3}
    )
    for _ in range(4):
        net.training_step(batch()).backward()
    os.rename("broken", "away")
    Path("broken").write_text("no folder")
    net.memprofiler._dumped = 0
    net.on_train_end()
    net.teardown("fit")
found["broken"] = {"warnings": [str(w.message) for w in caught], "keys": keys(net)}


# A hook of the program's own, and one that its configuration names.
def own(module, args):
    module.calls = getattr(module, "calls", 0) + 1


net = model(
    "own",
    memory_hooks={
        "pre_forward_hooks": own,
        "post_forward_hooks": [],
        "reset_state_hooks": [],
    },
    save_hook_attrs=["calls"],
)
for _ in range(3):
    net.training_step(batch())
found["own"] = {
    k: {n: f for n, f in v.items() if "calls" in n}
    for k, v in net.memprofiler.memory_stats.items()
}
found["own_left"] = [n for m in net.modules() for n in vars(m) if n == "calls"]

if device == "cuda":
    # Recordings, and none left under way.
    net = model("history", cuda_allocator_history=True)
    seen = found["history"] = {"recording": []}
    for _ in range(3):
        net.training_step(batch()).backward()
        recorder = net.memprofiler._history
        seen["recording"].append(recorder is not None and recorder.recording)
    profiler = net.memprofiler
    profiler.cuda_allocator_history_snap((0, "later", 7, "end"))
    seen["files"] = files("history")
    with open("history/cuda_alloc_rank_0.training_step.2.end.pickle", "rb") as file:
        snapshot = pickle.load(file)
    seen["snapshot"] = sorted(snapshot)
    seen["events"] = len(snapshot["device_traces"][0])
    frames = [f for e in snapshot["device_traces"][0] for f in e.get("frames", ())]
    seen["frames"] = sum(f["name"] == "training_step" for f in frames) > 0
    seen["torch"] = torch._C._cuda_isHistoryEnabled()

print(json.dumps(found))
