"""Figures of functions line by line: against an independent model, and worked out by hand."""

import gzip
import pickle
import random
import subprocess
import sys
from pathlib import Path

import model_ledger
import pytest

import memlab
from memlab import _answers, _core
from memlab._files import load
from memlab._report import peaks, stack_lines

DATA = Path(__file__).parents[1] / "data"
KIB = 1 << 10
MIB = 1 << 20
SEGMENT = 1 << 40


# ---- Against an independent model ----


def model_lines(events, settings):
    """What each (file, function, line) did, by going through every stack."""
    model = model_ledger.Model(settings)
    live, most, at_peak, found = {}, 0, {}, {}
    for event in events:
        model.apply(event)
        total = model.totals()["allocated_bytes"]
        if event["action"] == "alloc":
            stack = {(f["filename"], f["name"], f["line"]) for f in event["frames"]}
            size = model.blocks[event["addr"]].size
            live[event["addr"]] = size, stack
            for line in stack:
                figures = found.setdefault(line, dict.fromkeys(FIGURES, 0))
                figures["allocated_bytes"] += size
                figures["allocations"] += 1
                figures["peak_bytes"] = max(figures["peak_bytes"], total)
        elif event["action"] == "free_requested":
            del live[event["addr"]]
        assert total == sum(size for size, _ in live.values())
        if total > most:
            most, at_peak = total, dict(live)
    for key, blocks in (("at_peak_bytes", at_peak), ("left_bytes", live)):
        for size, stack in blocks.values():
            for line in stack:
                found[line][key] += size
    return found


FIGURES = set(_answers.LineFigures.__annotations__) - {"line"}


def recorded_lines(recording):
    return {
        (function["file"], function["function"], line.pop("line")): line
        for function in recording.lines(0)["functions"]
        for line in function["lines"]
    }


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_real_traces_against_the_model(name):
    data = gzip.decompress((DATA / f"{name}.pickle.gz").read_bytes())
    snapshot = pickle.loads(data)
    want = model_lines(snapshot["device_traces"][0], snapshot["allocator_settings"])
    assert len(want) > (20 if name == "gpt2_oom" else 1)
    assert recorded_lines(_core.Recording.from_bytes(data)) == want


class Program:
    """Functions that call each other and themselves by a plan."""

    def __init__(self, script):
        self.script = script
        self.used = {}
        for slot in range(32):
            script.emit("segment_alloc", SEGMENT + slot * 4 * MIB, 2 * MIB)

    def allocate(self, slot, size):
        if slot not in self.used:
            self.used[slot] = size
            self.script.emit("alloc", SEGMENT + slot * 4 * MIB, size)

    def release(self, slot):
        size = self.used.pop(slot, None)
        if size is not None:
            self.script.emit("free_requested", SEGMENT + slot * 4 * MIB, size)
            self.script.emit("free_completed", SEGMENT + slot * 4 * MIB, size)

    def one(self, plan):
        for kind, slot, size, inner in plan:
            if kind == "alloc":
                self.allocate(slot, size)
            elif kind == "free":
                self.release(slot)
            elif kind == "one":
                self.one(inner)
            else:
                (lambda: self.two(inner))()

    def two(self, plan):
        for kind, slot, size, inner in plan:
            if kind == "alloc":
                self.allocate(slot, size)
            elif kind == "free":
                self.release(slot)
            else:
                [self.one, self.two][kind == "two"](inner)


def make_plan(choose, depth):
    kinds = ["alloc"] * 4 + ["free"] * 3 + (["one", "two"] if depth else [])
    plan = []
    for _ in range(choose.randrange(2, 7)):
        kind = choose.choice(kinds)
        inner = make_plan(choose, depth - 1) if kind in ("one", "two") else ()
        plan.append((kind, choose.randrange(32), 512 * choose.randrange(1, 128), inner))
    return plan


@pytest.mark.parametrize("seed", range(20))
def test_programs_at_random_against_the_model(script, seed):
    choose = random.Random(seed)
    with memlab.MemorySnapshot(source="script") as snapshot:
        program = Program(script)
        for _ in range(10):
            program.one(make_plan(choose, 5))
            program.two(make_plan(choose, 5))
    events = snapshot.data().to_dict()["device_traces"][0]
    want = model_lines(events, {})
    names = {name for _, name, _ in want}
    assert {"one", "two", "<lambda>", "allocate"} <= names
    assert recorded_lines(snapshot.data()) == want


def test_older_events_that_were_overwritten(script):
    """What they left is live at the peak, and else counts nowhere."""

    def early():
        script.emit("alloc", SEGMENT, 4 * KIB)

    def late(count):
        for _ in range(count):
            script.emit("alloc", SEGMENT + 8 * KIB, KIB)
            script.emit("free_requested", SEGMENT + 8 * KIB, KIB)
            script.emit("free_completed", SEGMENT + 8 * KIB, KIB)

    with memlab.MemorySnapshot(source="script", max_entries=30) as snapshot:
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        early()
        late(100)
    assert snapshot.peak()["overwritten_events"] > 200
    lines = recorded_lines(snapshot.data())
    ((_, old),) = [item for item in lines.items() if item[0][1] == "early"]
    assert old == {**dict.fromkeys(FIGURES, 0), "at_peak_bytes": 4 * KIB}
    ((_, new),) = [item for item in lines.items() if item[0][1] == "late"]
    kept = sum(e["action"] == "alloc" for e in
               snapshot.data().to_dict()["device_traces"][0])
    assert new == {
        "at_peak_bytes": KIB, "backward_bytes": 0, "peak_bytes": 5 * KIB,
        "allocated_bytes": kept * KIB, "left_bytes": 0, "allocations": kept,
    }  # fmt: skip


# ---- Training, worked out by hand ----

TRAIN = """\
import sys

import torch
from torch import nn

import memlab

DEVICE = sys.argv[1]


def ones():
    return torch.ones(1024, 1024, device=DEVICE)  # ones


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(ones())

    def forward(self, x):
        y = x * self.weight  # mul
        return y.exp()  # exp


def train():
    gate = Gate()  # gate
    gradient = ones()  # gradient
    kept = []
    for step in range(2):
        x = ones()  # x
        out = gate(x)  # out
        out.backward(gradient)  # backward
        kept.append(torch.ones(512, 512, device=DEVICE))  # kept
        del x, out
    return gate, kept


if DEVICE == "cuda":
    torch.cuda.init()
with memlab.MemorySnapshot(source=DEVICE) as snapshot:
    held = train()
snapshot.save("train.pickle")
"""

# MiB: at peak, backward, peak, allocated, left; of 4 each but what is kept, 1.  The peak,
# 29, is in the second backward pass: weight, gradient, the weight's own gradient of the
# first pass, what was kept, x, out, and the gradients of y and of the weight.
WANT = {
    "ones": (12, 0, 17, 16, 4),  # weight, gradient, x
    "mul": (0, 8, 21, 8, 0),  # y is freed when forward returns
    "exp": (4, 4, 25, 8, 0),
    "gate": (4, 0, 4, 4, 4),
    "gradient": (4, 0, 8, 4, 0),
    "x": (4, 0, 17, 8, 0),
    "out": (4, 12, 25, 16, 0),
    "kept": (1, 0, 22, 2, 2),
}
# On the CPU the line that calls backward() runs while the pass allocates; of the four
# gradients it leaves the weight's.
WANT_CPU = {**WANT, "backward": (12, 0, 29, 16, 4)}


def check_training(path, program, want):
    recording = load.read_recording(path)
    answer = recording.peak(0)
    assert answer["peak"]["allocated_bytes"] == 29 * MIB
    names = ("ones", "Gate.forward", "train")
    tables = peaks.lines(recording, functions=names)
    assert {table["function"] for table in tables} == set(names)
    assert {table["file"] for table in tables} == {str(program)}
    found = {}
    for table in tables:
        assert table["source"] == "read"
        for line in table["lines"]:
            label = line["code"].partition("# ")[2]
            keys = [key for key, _ in stack_lines._FIGURES]
            found[label] = tuple(line[key] / MIB for key in keys)
    assert found == want
    own = {table["function"]: table["own_bytes"] / MIB for table in tables}
    assert own == {"ones": 12, "Gate.forward": 16, "train": 1}


@pytest.mark.cuda
def test_training_on_a_gpu(phantom_run, tmp_path):
    phantom_run(TRAIN, "cuda")
    check_training(tmp_path / "train.pickle", tmp_path / "program.py", WANT)


def test_training_on_the_cpu(torch, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAIN)
    subprocess.run([sys.executable, program, "cpu"], cwd=tmp_path, check=True)
    check_training(tmp_path / "train.pickle", program, WANT_CPU)
