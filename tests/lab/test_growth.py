"""Recording.growth(): which lines leave memory behind, and who holds it.

Each program of tests/programs/leaks/ marks the line that leaks and says who holds what, since
when; of those in tests/programs/settles/ nothing grows.  Both run in this process.
"""

import gc
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from cuda_here import KEEPS_WORKSPACES, torch_since

import memlab
from memlab._cli import main
from memlab._files import load
from memlab._run import growing

torch = pytest.importorskip("torch")

PROGRAMS = Path(__file__).parent.parent / "programs"
LEAKS = sorted((PROGRAMS / "leaks").glob("*.py"))
SETTLES = sorted((PROGRAMS / "settles").glob("*.py"))


def record(path):
    """The recording of the program at PATH, and of it growth()."""
    torch.manual_seed(0)
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    snapshot = memlab.MemorySnapshot(source="cpu")
    snapshot.start()
    growing.Watch(snapshot).start()
    try:
        spec.loader.exec_module(module)
        snapshot.stop()
        recording = snapshot.data()
    finally:
        snapshot.stop()
        del sys.modules[spec.name]
        vars(module).clear()
        gc.collect()
    return recording


def said(path, key):
    return re.search(rf"^{key}: (.*)$", path.read_text(), re.MULTILINE)[1]


def test_enough_programs():
    assert len(LEAKS) >= 20


@pytest.mark.parametrize("path", LEAKS, ids=lambda path: path.stem)
def test_leak(path):
    recording = record(path)
    lines = path.read_text().splitlines()
    [marked] = [i for i, line in enumerate(lines, 1) if line.endswith("# leaks")]
    growth = recording.growth(0)
    certain = [line for line in growth["lines"] if line["certain"]]
    assert certain, growth
    first = certain[0]
    assert (first["file"], first["line"]) == (str(path), marked), growth
    assert first["since_step"] == int(said(path, "since step")), first
    assert said(path, "held by") in first["holder"], first
    [finding] = [f for f in recording.verdict(0)["findings"] if f["kind"] == "grows"]
    assert (finding["line"], finding["holder"]) == (marked, first["holder"])


def test_too_many_objects_are_said_once(monkeypatch):
    """They are not searched, and no step pays for it."""
    frozen = []
    freeze = memlab.MemorySnapshot._freeze
    monkeypatch.setattr(growing, "_OBJECTS", 0)
    monkeypatch.setattr(
        memlab.MemorySnapshot, "_freeze", lambda *args: frozen.append(args) or freeze(*args)
    )
    [path] = [path for path in LEAKS if path.stem == "list_global"]
    with pytest.warns(RuntimeWarning, match="too many objects") as told:
        recording = record(path)
    assert len(told) == 1 and len(frozen) == 1
    assert not recording.growth(0)["lines"][0]["holder"]


def test_category_says_so():
    [path] = [path for path in LEAKS if path.stem == "list_local"]
    recording = record(path)
    whys = recording.peak(0)["unknown_because"]
    assert whys["left behind by each step: it grows"] >= 7 * 2048, whys
    # The page, too.
    head = json.loads(recording.page_data()[0])
    said = [head["whys"][why] for why in head["kinds"]["why"]]
    assert "left behind by each step: it grows" in said
    assert "kept over several backward passes" not in said


@pytest.mark.parametrize("path", SETTLES, ids=lambda path: path.stem)
def test_settles(path):
    growth = record(path).growth(0)
    assert [line for line in growth["lines"] if line["certain"]] == [], growth


UNFROZEN = """
import sys
import torch

torch.cuda.memory._record_memory_history(max_entries=100_000)
layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(12))).cuda()
layers.requires_grad_(False)
optimizer = torch.optim.AdamW(layers.parameters())
kept = []
for i in range(10):
    layers[-1 - i].requires_grad_(True)
    layers(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=sys.argv[1] != "gradients stay")
    if sys.argv[1] == "leaks":
        kept.append(torch.empty(1 << 18, device="cuda"))
torch.cuda.memory._dump_snapshot(sys.argv[2])
"""


@pytest.mark.cuda
def test_torchs_own_snapshot_by_backward_passes(phantom_run, tmp_path):
    """Ten steps, each of which makes one more layer's states, or keeps its gradient, too; the
    leak is 1 MiB a step."""
    script, path = tmp_path / "unfrozen.py", tmp_path / "torch.pickle"
    script.write_text(UNFROZEN)
    for what, leaks in (
        ("settles", []),
        ("gradients stay", []),
        ("leaks", [(16, 1 << 20)]),
    ):
        phantom_run(script, what, path)
        growth = load.read_recording(path).growth(0)
        assert (growth["steps_by"], growth["steps"]) == ("backward_passes", 10)
        lines = [(line["line"], line["bytes_per_step"]) for line in growth["lines"]]
        assert lines == leaks


SIZED = """
import json, sys
import torch
import memlab

bytes, kept = int(sys.argv[1]), []
layer = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
snapshot = memlab.MemorySnapshot().start()
for i in range(8):
    layer(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if sys.argv[2] == "leaks":
        kept.append(torch.empty(bytes, dtype=torch.uint8, device="cuda"))
torch._C._cuda_clearCublasWorkspaces()
kept.clear()
recording = snapshot.stop().data()
lines = recording.growth(0)["lines"]
print(json.dumps([recording.peak(0)["by_category"].get("workspace", 0), lines]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("bytes", [8_519_680, 33_554_432])
def test_a_leak_of_a_workspaces_size_grows(phantom_run, bytes):
    """Such tensors are no workspaces, and workspaces are some though they are cleared at the
    end, where all that leaked goes, too."""
    kept, lines = json.loads(phantom_run(SIZED, bytes, "settles").stdout)
    leaking, [line] = json.loads(phantom_run(SIZED, bytes, "leaks").stdout)
    assert kept > 0 and lines == []
    assert (line["line"], line["bytes_per_step"]) == (15, bytes)
    # The first tensor may be one, as it is made in no forward.
    assert leaking - kept in (0, bytes)


OUTPUTS = """
import json, sys
import torch
import memlab

rows, kept = int(sys.argv[1]), []
layer = torch.nn.Linear(1024, 1024).cuda()
batch = torch.randn(rows, 1024, device="cuda")
snapshot = memlab.MemorySnapshot().start()
with torch.no_grad():
    for i in range(8):
        kept.append(layer(batch))
growth = snapshot.stop().data().growth(0)
[line] = growth["lines"]
print(json.dumps([growth["steps"], line["steps"], line["blocks"], line["bytes"]]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [8192, 7680])
def test_what_an_inference_keeps_has_no_workspace(phantom_run, rows):
    """That of 32 MiB, and cuBLASLt's of 1 MiB, come by the stack that marks the calls: once, or
    from 2.15 on for each call, so that no output is taken for the one that earlier versions keep.
    What follows the last call's beginning is of no step."""
    done = phantom_run(OUTPUTS, rows, env={"MEMLAB_PHANTOM_GPU": "h100"})
    assert json.loads(done.stdout) == [7, 7, 7, 7 * 4096 * rows]


ONE_CALL = """
import json
import torch
import memlab

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(512, 512) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

net = Net().cuda()
x = torch.randn(4096, 512, device="cuda")
net(x).sum().backward()  # makes the workspaces
snapshot = memlab.MemorySnapshot().start()
kept = net(x)
growth = snapshot.stop().data().growth(0)
print(json.dumps([growth["steps"], growth["lines"]]))
"""


@pytest.mark.cuda
def test_a_loop_over_layers_is_one_call(phantom_run):
    """As in the forward of step 0 that runs out of memory: what it keeps is no leak."""
    assert json.loads(phantom_run(ONE_CALL).stdout) == [0, []]


STREAMS = """
import json, sys
import torch
import memlab
from memlab._report import report

layer = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(layer.parameters())
one = torch.cuda.Stream()
snapshot = memlab.MemorySnapshot().start()
for i in range(10):
    stream = torch.cuda.Stream() if i < int(sys.argv[1]) else one
    with torch.cuda.stream(stream):
        layer(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
recording = snapshot.stop().data()
snapshot.save(sys.argv[2])
found = recording.verdict(0)["findings"]
print(json.dumps([recording.growth(0), report.text(recording), found]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("new", [10, 3, 0])
def test_a_stream_a_step_leaves_workspaces(phantom_run, tmp_path, capsys, new):
    """Of the forward's and of the backward's thread; a line of the program leaves nothing.
    Where the streams are made at the beginning nothing grows."""
    file = str(tmp_path / "streams.pickle")
    env = {"MEMLAB_PHANTOM_GPU": "h100", **KEEPS_WORKSPACES}
    growth, text, found = json.loads(phantom_run(STREAMS, new, file, env=env).stdout)
    assert growth["lines"] == []
    found = [finding for finding in found if finding["kind"] == "workspaces_grow"]
    leaks = main.main(["report", file, "--fail-on", "leak"])
    if new < 10:
        assert growth["workspaces"] is None and "workspaces grow" not in text
        assert found == [] and leaks == 0
        return
    assert leaks == 3 and "memlab: cuda:0: cuBLAS's workspaces grow" in capsys.readouterr().err
    # 32 MiB of each thread, and, up to 2.14, 1 MiB that the forward's keeps for the bias.
    blocks, mib = (2, 64) if torch_since(2, 15) else (3, 65)
    assert growth["workspaces"] == {
        "streams": 10, "bytes_per_step": mib << 20, "bytes": 10 * mib << 20,
        "blocks": 10 * blocks, "since_step": 0, "steps": 10, "text": found[0]["text"],
    }
    assert (found[0]["bytes"], found[0]["of_bytes"]) == (mib << 20, 10 * mib << 20)
    assert (found[0]["since_step"], found[0]["steps"]) == (0, 10)
    # On the first screen, too.
    text = " ".join(text.split())
    assert text.count(f"cuBLAS's workspaces grow by {mib}.0 MiB a step since step 0: torch") == 2
    assert text.count("torch._C._cuda_clearCublasWorkspaces() every few steps.") == 2


HELD_BEFORE = """
import json, sys
import torch
import memlab

bytes, count = int(sys.argv[1]), int(sys.argv[2])
layer = torch.nn.Linear(512, 512).cuda()
held = [torch.empty(bytes, dtype=torch.uint8, device="cuda") for _ in range(count)]
snapshot = memlab.MemorySnapshot().start()
for _ in range(3):
    layer(torch.randn(64, 512, device="cuda")).square().mean().backward()
print(json.dumps(snapshot.stop().data().peak(0)["by_category"]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("bytes", [8_519_680, 33_554_432])
def test_tensors_from_before_of_a_workspaces_size_are_none(phantom_run, bytes):
    """The recording sees the workspaces made."""
    none, held = (json.loads(phantom_run(HELD_BEFORE, bytes, n).stdout) for n in (0, 4))
    assert held["workspace"] == none["workspace"] > 0
    assert held["before_recording"] == none.get("before_recording", 0) + 4 * bytes
