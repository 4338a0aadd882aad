"""When each block was last used: real programs on the real caching allocator, against
positions worked out by hand and against torch's own dispatcher, asked from Python."""

import json
import pickle
import subprocess
import sys

import pytest

import memlab
from memlab import _core
from memlab._files.load import read_recording

MIB = 1 << 20

# What the programs share: tensors by MiB, and where a recording has their last uses.
HEAD = """
import json, pickle, sys
import torch
import memlab

def make(mib):
    return torch.zeros(mib << 18, device="cuda")

make(1)  # CUDA is ready, and nothing is there
torch.cuda.empty_cache()

def recorded(snapshot):
    snapshot.stop()
    snapshot.save("it.pickle")
"""


def run(phantom_run, tmp_path, program, *args):
    """What the program wrote: the snapshot, the memlab key of its device."""
    done = phantom_run(HEAD + program, *args)
    snapshot = pickle.loads((tmp_path / "it.pickle").read_bytes())
    return done, snapshot["device_traces"][0], snapshot["memlab"]["devices"][0]


def frees(events, device):
    """Of each block that was freed: (MiB, event of its birth or None, last use or None,
    event of the free)."""
    born, found = {}, []
    unused = device.get("unused", [0] * len(events))
    for i, (event, idle) in enumerate(zip(events, unused, strict=True)):
        if event["action"] == "alloc":
            born[event["addr"]] = i
        elif event["action"] == "free_requested":
            last = i - (idle - 1) if idle else None
            found.append((event["size"] // MIB, born.pop(event["addr"], None), last, i))
    return found


def live(events, device):
    """Of each block that is live at the end: MiB to its last use or None."""
    uses = device.get("uses", {"addr": [], "position": []})
    last = dict(zip(uses["addr"], uses["position"], strict=True))
    there = {}
    for event in events:
        if event["action"] == "alloc":
            there[event["addr"]] = event["size"] // MIB
        elif event["action"] == "free_completed":
            there.pop(event["addr"], None)
    return {mib: last.get(addr) for addr, mib in there.items()}


def check_recordings(events, device):
    """What holds of every recording."""
    for _, birth, last, free in frees(events, device):
        assert last is None or last <= free
        assert birth is None or last is None or last > birth


@pytest.mark.cuda
def test_by_hand(phantom_run, tmp_path):
    _, events, device = run(phantom_run, tmp_path, """
snapshot = memlab.MemorySnapshot(uses=True).start()
x = make(30)       # 0 segment, 1 alloc; zero_ ends after 1
y = x * 2          # 2 segment, 3 alloc: both used up to 4
untouched = torch.empty(40 << 18, device="cuda")  # 4 segment, 5 alloc
z = y.view(-1)[:1000]  # of the storage of y
z.add_(1)          # up to 6
del x              # 6, 7
w = make(50)       # 8, 9: up to 10
del y, untouched   # 10, 11: z still holds y's storage
held = make(60)    # 12, 13: up to 14
z.mul_(2)          # up to 14
del w, z           # 14 to 17
make(70)           # 18, 19, used up to 20; 20, 21
recorded(snapshot)
""")
    actions = [e["action"] for e in events]
    assert actions.count("segment_alloc") == 6
    check_recordings(events, device)
    assert [(mib, last) for mib, _, last, _ in frees(events, device)] == [
        (30, 4), (40, None), (50, 10), (30, 14), (70, 20)]
    assert live(events, device) == {60: 14}


@pytest.mark.cuda
def test_the_file_tells_the_same(phantom_run, tmp_path):
    _, events, device = run(phantom_run, tmp_path, """
x = make(30)
snapshot = memlab.MemorySnapshot(uses=True, file="it.mlab").start()
plain = memlab.MemorySnapshot(file="plain.mlab").start()
y = x * 2
kept = [y + 1 for _ in range(3)]
del y
kept[1].add_(1)
recorded(snapshot)
plain.stop()
plain.save("plain.pickle")
""")
    assert live(events, device)[30] is not None and len(device["uses"]["addr"]) == 3
    read = read_recording(tmp_path / "it.mlab")
    read.write_pickle(str(tmp_path / "again.pickle"), True)
    again = pickle.loads((tmp_path / "again.pickle").read_bytes())["memlab"]["devices"][0]
    # The file ends with the SNAPSHOT event by which the recording in memory was read.
    assert again["unused"] == device["unused"] + [0]
    assert again["uses"] == device["uses"]
    # A reader that does not know of last uses must not take the events for others.
    assert (tmp_path / "it.mlab").read_bytes()[16] & 1
    # Who did not ask for them has none, though its file shares the other's records.
    assert not (tmp_path / "plain.mlab").read_bytes()[16] & 1
    read_recording(tmp_path / "plain.mlab").write_pickle(str(tmp_path / "p.pickle"), True)
    for path in tmp_path / "plain.pickle", tmp_path / "p.pickle":
        keys = pickle.loads(path.read_bytes())["memlab"]["devices"][0]
        assert "unused" not in keys and "uses" not in keys


# Everything that torch's dispatcher runs, forward and backward, asked in Python: after each
# operator, how many events had come, for every storage it had.
DISPATCH = """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

class Watch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.last = {}
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        empty = "empty" in str(function)
        used = [args, kwargs] if empty else [args, kwargs, result]
        now = memlab.stats(0)["events"]
        for leaf in tree_leaves(used):
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                self.last[leaf.untyped_storage().data_ptr()] = now
        return result

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Dropout(),
    torch.nn.Linear(256, 64)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), foreach=sys.argv[1] == "foreach")
watch = Watch()
snapshot = memlab.MemorySnapshot(uses=True, max_entries=10**6).start()
base = memlab.stats(0)["events"]
told = []
with watch:
    for step in range(3):
        x = torch.randn(512, 64, device="cuda")
        out = net(x)
        loss = torch.nn.functional.cross_entropy(out, x.argmax(1)) + out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append({a: n - base for a, n in watch.last.items()})
recorded(snapshot)
json.dump(told[-1], sys.stdout)
"""


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["foreach", "single"])
def test_never_earlier_than_the_dispatcher_says(kind, phantom_run, tmp_path):
    done, events, device = run(phantom_run, tmp_path, DISPATCH, kind)
    told = {int(addr): n for addr, n in json.loads(done.stdout).items()}
    check_recordings(events, device)
    # The last of each address: of blocks before, it is another's that was told.
    mine, same = {}, 0
    for event, idle, i in zip(events, device["unused"], range(len(events)), strict=True):
        if event["action"] == "free_requested" and idle:
            mine[event["addr"]] = i - (idle - 1)
    mine.update(zip(device["uses"]["addr"], device["uses"]["position"], strict=True))
    born = {e["addr"]: i for i, e in enumerate(events) if e["action"] == "alloc"}
    compared = 0
    for addr, last in told.items():
        if addr in mine and addr in born and last > born[addr]:
            compared += 1
            assert mine[addr] >= last
            same += mine[addr] == last
    assert compared > 30
    assert same >= 0.8 * compared


@pytest.mark.cuda
def test_what_loops_hold(phantom_run, tmp_path):
    """Outputs that a variable holds over the next iteration, a batch that nobody uses, and
    losses that are kept with their graphs."""
    _, events, device = run(phantom_run, tmp_path, """
net = torch.nn.Linear(1 << 10, 2 << 10).cuda()
history = []
snapshot = memlab.MemorySnapshot(uses=True).start()
for step in range(3):
    mark = make(3)  # a step begins
    x = make(8)
    unused = make(5)  # 5 MiB
    out = net(x.view(-1, 1 << 10))  # 16 MiB
    hidden = out.exp()              # 16 MiB, saved
    history.append(hidden.sum())
    del hidden, mark
recorded(snapshot)
""")
    check_recordings(events, device)
    begins = [i for i, e in enumerate(events) if e["action"] == "alloc"
              and e["size"] == 3 * MIB]
    freed = frees(events, device)
    # Each step's unused batch goes when the next one's is there, and was only made.
    unused = [(birth, last, free) for mib, birth, last, free in freed if mib == 5]
    assert len(unused) == 2
    for birth, last, free in unused:
        assert last == birth + 1
        assert sum(birth < begin < free for begin in begins) == 1
    # The output is used within its step alone.
    outs = [(birth, last, free) for mib, birth, last, free in freed if mib == 16]
    assert len(outs) == 2
    for birth, last, free in outs:
        assert not any(birth < begin < last for begin in begins)
        assert any(last <= begin < free for begin in begins)
    # What exp() saved lives to the end; the first two were last used in their steps.
    uses = dict(zip(device["uses"]["addr"], device["uses"]["position"], strict=True))
    alive = [(i, uses[e["addr"]]) for i, e in enumerate(events)
             if e["action"] == "alloc" and e["size"] == 16 * MIB
             and not any(f[1] == i for f in freed)]
    assert len(alive) == 4  # three of exp(), and the last step's output
    for birth, last in alive[:2]:
        assert not any(birth < begin < last for begin in begins)


@pytest.mark.cuda
def test_a_custom_backward_may_use_what_it_kept(phantom_run, tmp_path):
    _, events, device = run(phantom_run, tmp_path, """
class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + 1
    @staticmethod
    def backward(ctx, grad):
        ctx.saved_tensors[0].data_ptr()  # as a kernel of its own would
        shelf.clear()
        marks.append(make(3))
        return None

marks = []
snapshot = memlab.MemorySnapshot(uses=True).start()
x = make(30).requires_grad_()
y = Custom.apply(x).sum()
shelf = [make(11)]
early = make(7)
del early
y.backward()
del x, y
recorded(snapshot)
""")
    of = {mib: (birth, last) for mib, birth, last, _ in frees(events, device)}
    backward = next(i for i, e in enumerate(events) if e["size"] == 3 * MIB)
    assert of[30][1] > backward
    assert of[7][1] < backward
    # What it lets go itself it may have used until then.
    end_of_forward = next(free for mib, _, _, free in frees(events, device) if mib == 7)
    assert of[11][1] > end_of_forward


@pytest.mark.cuda
def test_what_others_made_of_a_block_is_its_use(phantom_run, tmp_path):
    _, events, device = run(phantom_run, tmp_path, """
snapshot = memlab.MemorySnapshot(uses=True).start()
x = make(30)
part = torch.from_dlpack(x[1000:])  # its storage begins within the block
del x
mark = make(3)
part.add_(1)
mark2 = make(4)
del part
recorded(snapshot)
""")
    marks = [i for i, e in enumerate(events) if e["action"] == "alloc"
             and e["size"] in (3 * MIB, 4 * MIB)]
    ((_, _, last, _),) = [f for f in frees(events, device) if f[0] == 30]
    assert marks[0] < last <= marks[1]


@pytest.mark.cuda
def test_private_pools_are_used_unseen(phantom_run, tmp_path):
    """A CUDA graph's replays run no operators: from its pool's first event on nothing is
    known, of other memory neither, which the graph may read."""
    _, events, device = run(phantom_run, tmp_path, """
snapshot = memlab.MemorySnapshot(uses=True).start()
early = make(5)
del early
x = make(6)
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    make(7)
del x
kept = make(8)
recorded(snapshot)
""")
    assert [(mib, last is None) for mib, _, last, _ in frees(events, device)] == [
        (5, False), (7, True), (6, True)]
    assert live(events, device) == {8: None}


@pytest.mark.cuda
def test_from_start_to_stop_only(phantom_run, tmp_path):
    """Two recordings, one after the other: the second knows nothing of the first's, nor of
    uses in between."""
    _, events, device = run(phantom_run, tmp_path, """
snapshot = memlab.MemorySnapshot(uses=True).start()
x = make(30)
y = make(40)
snapshot.stop()
x.add_(1)
snapshot = memlab.MemorySnapshot(uses=True).start()
z = make(50)
y.add_(1)
del x, y, z
recorded(snapshot)
""")
    assert [(mib, last is None) for mib, _, last, _ in frees(events, device)] == [
        (30, True), (40, True), (50, False)]


@pytest.mark.cuda
def test_forked_children_run_operators(phantom_run, tmp_path):
    run(phantom_run, tmp_path, """
import os
snapshot = memlab.MemorySnapshot(uses=True).start()
x = make(30)
child = os.fork()
if child == 0:
    torch.ones(3).add(1)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
recorded(snapshot)
""")


@pytest.mark.cuda
def test_memlab_run(phantom_run, tmp_path, device_environment):
    (tmp_path / "program.py").write_text(
        "import torch\nx = torch.ones(2 << 20, device='cuda')\ny = x + 1\ndel x\n")
    subprocess.run(
        [sys.executable, "-m", "memlab", "run", "--phantom", "--uses", "--out", "out",
         "program.py"], cwd=tmp_path, env=device_environment, check=True,
        capture_output=True)
    path = next((tmp_path / "out").glob("*.mlab"))
    read_recording(path).write_pickle(str(tmp_path / "x.pickle"), True)
    device = pickle.loads((tmp_path / "x.pickle").read_bytes())["memlab"]["devices"][0]
    assert any(device["unused"]) and len(device["uses"]["addr"]) == 1


# ---- Files ----


def snapshot_of(extra):
    """A snapshot of one allocation and its free, with EXTRA in memlab's key."""
    event = {"addr": 512, "size": 100, "stream": 0, "time_us": 1, "frames": []}
    trace = [dict(event, action=a) for a in ("alloc", "free_requested", "free_completed")]
    device = {"flags": "@@@", "block_bytes": [512] * 3, **extra}
    return {"segments": [], "device_traces": [trace],
            "memlab": {"version": 1, "source": "cuda", "has_segments": True,
                       "devices": [device]}}


def read(extra):
    return _core.Recording.from_bytes(pickle.dumps(snapshot_of(extra)))


def test_a_pickle_keeps_them(tmp_path):
    extra = {"unused": [0, 1, 0], "uses": {"addr": [512, 1024], "position": [0, 3]}}
    read(extra).write_pickle(str(tmp_path / "x.pickle"), True)
    device = pickle.loads((tmp_path / "x.pickle").read_bytes())["memlab"]["devices"][0]
    assert {key: device[key] for key in extra} == extra


@pytest.mark.parametrize(
    ("extra", "lost"),
    [
        ({"unused": [0, 1]}, {"memlab.event": 1}),
        ({"unused": [0, 2**32, 0]}, {"memlab.event": 1}),
        ({"unused": [0, -1, 0]}, {"memlab.event": 1}),
        ({"uses": []}, {"memlab.use": 1}),
        ({"uses": {"addr": [1]}}, {"memlab.use": 1}),
        ({"uses": {"addr": [1], "position": []}}, {"memlab.use": 1}),
        ({"uses": {"addr": ["1"], "position": [0]}}, {"memlab.use": 1}),
        ({"uses": {"addr": [1], "position": [4]}}, {"memlab.use": 1}),
        ({"uses": {"addr": [1, 1], "position": [0, 0]}}, {"memlab.use": 1}),
    ],
)
def test_uses_that_make_no_sense_are_left_out_and_counted(extra, lost):
    assert read(extra).unread == lost


# ---- What explain makes of it ----

# With "held" a loop holds what it needs no more over what comes next.
WASTES = """
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Tanh(),
                          torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(net.parameters())
history = []
waste, held = sys.argv[1], sys.argv[2] == "held"
with memlab.MemorySnapshot(uses=True) as snapshot:
    for step in range(4):
        x = torch.zeros(2048, 1024, device="cuda")
        out = net(x)                              # outputs
        loss = (out.square() * 3).mean()          # history
        loss.backward(retain_graph=waste == "history")
        optimizer.step()
        optimizer.zero_grad()
        if waste == "outputs" and held:
            kept = out
        if waste == "history":
            history.append(loss if held else loss.item())
            del out, loss
snapshot.save("it.pickle")
print(torch.cuda.max_memory_allocated())
"""


def explained(path, kind="late_frees"):
    (device,) = memlab.explain(path)["devices"]
    found = [a for a in device["advice"] if a["kind"] == kind]
    assert all(a["exact"] and a["file"].endswith("program.py") for a in found)
    return found, device["together"]["allocated_saving_bytes"]


@pytest.mark.cuda
@pytest.mark.parametrize("waste", ["outputs", "history"])
def test_explain_names_what_is_held(waste, phantom_run, tmp_path):
    """Its saving is what the program saves that lets go of it."""
    # What a graph keeps is told as the graph's, and not line by line once more.
    kind = "late_frees" if waste == "outputs" else "graph_retained"
    held = int(phantom_run(HEAD + WASTES, waste, "held").stdout)
    found, saving = explained(tmp_path / "it.pickle", kind)
    mended = int(phantom_run(HEAD + WASTES, waste, "mended").stdout)
    assert mended < held
    assert abs(saving - (held - mended)) <= 0.05 * (held - mended)
    lines = (HEAD + WASTES).split("\n")
    names = [lines[a["line"] - 1] for a in found]
    if waste == "outputs":
        # The last step's output, all of 8 MiB, at the peak of the next.
        assert [a["allocated_saving_bytes"] for a in found] == [8 * MIB]
        assert names[0].endswith("# outputs")
    else:
        # What tanh, square and the first product saved, of three steps, and three losses.
        assert [a["allocated_saving_bytes"] for a in found] == [(24 + 24 + 96) * MIB + 3 * 512]
        assert "loss.backward(" in names[0]
    left, _ = explained(tmp_path / "it.pickle", kind)
    # retain_graph=True still holds what the pass itself would let go of, of one step.
    assert [a["allocated_saving_bytes"] for a in left] == (
        [] if waste == "outputs" else [40 * MIB])


@pytest.mark.cuda
def test_what_may_yet_be_used_is_not_late(phantom_run, tmp_path):
    """Out of memory in a forward: what was saved waits for a backward pass that never
    comes.  A recording without last uses says nothing of them."""
    program = """
net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU())
                            for _ in range(6)]).cuda()
optimizer = torch.optim.SGD(net.parameters())
snapshot = memlab.MemorySnapshot(uses=sys.argv[1] == "uses").start()
for rows in 1024, 1024, 4096:
    x = torch.zeros(rows, 1024, device="cuda")
    loss = net(x).sum()
    if rows == 4096:
        break
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
recorded(snapshot)
"""
    for uses in "uses", "none":
        phantom_run(HEAD + program, uses)
        assert explained(tmp_path / "it.pickle")[0] == []
