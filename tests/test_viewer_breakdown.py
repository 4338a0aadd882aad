"""The page's breakdowns: what it sums of its data is what the core answers.

The sums are made under node by the page's own scripts; tests/viewer/breakdown.test.js
checks the rest of their functions.
"""

import base64
import gzip
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from memlab import _core

ROOT = Path(__file__).resolve().parent.parent
TRAINING = """
import sys
import torch
import memlab

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []
with memlab.MemorySnapshot() as snapshot:
    for step in range(4):
        batch = torch.randn(64, 256, device="cuda")
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.empty(step + 1, 1000, device="cuda"))
snapshot.save(sys.argv[1])
"""


@pytest.fixture(scope="session")
def node():
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


def recorded(name):
    """A recorded snapshot: tests/data."""
    data = (ROOT / "tests" / "data" / f"{name}.pickle.gz").read_bytes()
    return _core.Recording.from_bytes(gzip.decompress(data))


@pytest.fixture
def training(phantom_run, tmp_path):
    """Four steps of a little model."""
    path = tmp_path / "training.pickle"
    phantom_run(TRAINING, str(path))
    return _core.Recording.from_bytes(path.read_bytes())


def sums(node, recording, asked):
    """What the page sums of RECORDING, by each of its ways, for each (device, event)."""
    head, blobs = recording.page_data()
    told = {
        "head": json.loads(head),
        "blobs": [base64.b64encode(blob).decode() for blob in blobs],
        "asked": asked,
    }
    script = ROOT / "tests" / "viewer" / "breakdown_of.js"
    run = subprocess.run(
        [node, script], input=json.dumps(told).encode(), capture_output=True, check=True
    )
    return json.loads(run.stdout)


def counted(groups, *keys):
    """Bytes and blocks of GROUPS by what they are of."""
    out = {}
    for group in groups:
        key = json.dumps([group[name] for name in keys])
        assert key not in out, "two groups of one thing"
        out[key] = (group["bytes"], group["blocks"])
    return out


PLACE = ("phase", "how", "reason")
LINE = ("file", "line", "until_line", "function", "module", *PLACE)


def by_stack(groups):
    """Those with frames of their own; of the others, which the core tells by the stack of
    their forward, the sums."""
    own, others = {}, Counter()
    for group in groups:
        if group["how"] == "frames":
            key = json.dumps([group["frames"], *(group[name] for name in PLACE)])
            own[key] = (group["bytes"], group["blocks"])
        else:
            key = tuple(group[name] for name in PLACE)
            others[*key, "bytes"] += group["bytes"]
            others[*key, "blocks"] += group["blocks"]
    return own, others


def assert_same(shown, answer):
    """SHOWN by the page is ANSWER, of Recording.peak."""
    assert shown["total"] == answer["peak"]["allocated_bytes"]
    assert counted(shown["line"], *LINE) == counted(answer["by_line"], *LINE)
    kinds = {
        json.dumps([g[name] for name in LINE]): g["by_category"]
        for g in answer["by_line"]
    }
    for group in shown["line"]:
        assert group["by_category"] == kinds[json.dumps([group[k] for k in LINE])]
    modules = counted(shown["module"], "module", "reason")
    assert modules == counted(answer["by_module"], "module", "reason")
    assert counted(shown["size"], "least_bytes") == counted(
        answer["by_size"], "least_bytes"
    )
    assert by_stack(shown["stack"]) == by_stack(answer["by_stack"])
    categories, whys = Counter(), Counter()
    for group in shown["category"]:
        categories[group["category"]] += group["bytes"]
        if group["category"] == "unknown":
            whys[group["why"]] += group["bytes"]
    assert categories == Counter(answer["by_category"])
    assert +Counter({why: n for why, n in whys.items() if why}) == Counter(
        answer["unknown_because"]
    )
    inexact = sum(group["inexact"] for group in shown["category"])
    assert inexact == answer["inexact_category_bytes"]


def some_events(recording, count):
    """The peak, both ends, before the first, and COUNT in between."""
    events = recording.peak(0)["events"]
    peak = recording.peak(0)["peak"]["event"] - 1
    between = [events * i // (count + 1) for i in range(1, count + 1)]
    return [-1, 0, peak, events - 1, *between]


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_a_recorded_snapshot_sums_up_as_the_core_says(node, name):
    recording = recorded(name)
    events = some_events(recording, 6)
    for event, shown in zip(events, sums(node, recording, [(0, e) for e in events])):
        assert_same(shown, recording.peak(0, event))


@pytest.mark.cuda
def test_training_sums_up_as_the_core_says_after_each_event(node, training):
    """With lines of the backward pass, modules and categories."""
    events = range(-1, training.peak(0)["events"], 3)
    hows, categories = set(), set()
    for event, shown in zip(events, sums(node, training, [(0, e) for e in events])):
        answer = training.peak(0, event)
        assert_same(shown, answer)
        hows |= {group["how"] for group in answer["by_line"]}
        categories |= {name for name, n in answer["by_category"].items() if n}
    assert hows >= {"frames", "node"}
    assert categories >= {"parameter", "gradient", "optimizer_state", "activation"}
