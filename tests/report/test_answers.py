"""What memlab answers has the shapes that memlab/_answers/ and the stubs promise."""

import ast
import gzip
import json
from pathlib import Path

import pytest
from answer_shapes import check, misfits

import memlab
from memlab import _answers, _core
from memlab._report import report as _report

PACKAGE = Path(memlab.__file__).parent
DATA = Path(__file__).resolve().parents[1] / "data"
MIB = 1 << 20


@pytest.mark.parametrize(
    "value, said",
    [
        ({"file": "a", "line": 1, "function": "f"}, []),
        ({"file": "a", "line": 1}, ["answer has no 'function'"]),
        ({"file": "a", "line": True, "function": "f"},
         ["answer['line'] is True and no <class 'int'>"]),
        ({"file": "a", "line": 1, "function": "f", "x": 1},
         ["answer has 'x' besides"]),
        (None, ["answer is no dict"]),
    ],
)
def test_the_check_finds_what_does_not_fit(value, said):
    assert list(misfits(value, _answers.Place)) == said


def test_of_a_recording(tmp_path):
    script = _core.Script()
    script.reset()
    path = tmp_path / "run.mlab"
    with memlab.MemorySnapshot(source="script", file=path) as snapshot:
        script.emit("segment_alloc", 1 << 30, 2 * MIB)
        with memlab.phase("load"):
            script.emit("alloc", 1 << 30, MIB)
        memlab.mark("loaded")
        memlab.step()
    script.reset()
    recording = snapshot.data()
    check(snapshot.peak(), _answers.Peak)
    check(recording.peak(0), _answers.Peak)
    check(recording.lines(0), _answers.Lines)
    assert recording.lines(0)["functions"], "no line was checked"
    check(recording.counts(0), _answers.Counts)
    check(recording.notes(), list[_answers.Note])
    assert recording.notes(), "no note was checked"
    assert recording.file is None and recording.oom(0) is None
    read = _core.Recording.from_file(path)
    check(read.file, _answers.File)
    live = _core.Follower(path)
    check(live.poll(), _answers.News)
    live.recording()
    check(live.history(0), _answers.History)
    check(_report.report(read, str(path)), _answers.Report)
    check(memlab.stats("script:0"), _answers.Stats)
    check(memlab.backends(), dict[str, _answers.Backend])


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_of_a_recording_of_torch(name):
    data = gzip.decompress((DATA / f"{name}.pickle.gz").read_bytes())
    report = _report.report(_core.Recording.from_bytes(data))
    check(report, _answers.Report)
    assert len(report["oom"]) == (name == "gpt2_oom")


@pytest.mark.cuda
def test_of_a_gpu_out_of_memory(phantom_run, tmp_path):
    """With parameters, steps, growth, holes between blocks, and samples."""
    done = phantom_run("""
import json
import torch
import memlab

kept = []
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
with memlab.MemorySnapshot(file="run.mlab") as snapshot:
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept += [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(9)]
    del kept[5::2]
    try:
        torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
print(json.dumps([snapshot.peak(), snapshot.data().oom(0), snapshot.data().notes(),
                  memlab.ledger(), memlab.stats()]))
""", env={"MEMLAB_PHANTOM_MEMORY": str(2 << 30)})
    peak, oom, notes, ledger, stats = json.loads(done.stdout.splitlines()[-1])
    check(peak, _answers.Peak)
    check(oom, _answers.Oom)
    check(notes, list[_answers.Note])
    check(ledger, _answers.Ledger)
    check(stats, _answers.Stats)
    assert oom["holes"] and oom["growth"] is not None and peak["gpu"] is not None
    read = _core.Recording.from_file(tmp_path / "run.mlab")
    check(_report.report(read, None), _answers.Report)


def test_every_shape_is_used_and_says_what_it_is():
    used = {"Report", "Lines", "Ledger", "Note", "Counts", "Stats", "News"}
    used |= {"Backend", "Diff", "History", "Leak", "MergedRanks", "ReporterDevice"}
    used |= {"Explanation", "FitAnswer", "Replay", "Survey", "Sweep", "Tune"}
    trees = [ast.parse(path.read_text()) for path in (PACKAGE / "_answers").glob("*.py")]
    shapes = {n.name: n for tree in trees for n in tree.body if isinstance(n, ast.ClassDef)}
    seen = set()
    while used:
        name = used.pop()
        seen.add(name)
        names = {n.id for n in ast.walk(shapes[name]) if isinstance(n, ast.Name)}
        used |= (names & shapes.keys()) - seen
    assert seen == set(shapes)
    for name, shape in shapes.items():
        assert name.startswith("_") or ast.get_docstring(shape), name
