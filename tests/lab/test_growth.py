"""Recording.growth(): which lines leave memory behind, and who holds it.

Each program of tests/programs/leaks/ marks the line that leaks and says who holds what, since
when; of those in tests/programs/settles/ nothing grows.  Both run in this process.
"""

import gc
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import memlab
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


def test_category_says_so():
    [path] = [path for path in LEAKS if path.stem == "list_local"]
    whys = record(path).peak(0)["unknown_because"]
    assert whys["left behind by each step: it grows"] >= 7 * 2048, whys


@pytest.mark.parametrize("path", SETTLES, ids=lambda path: path.stem)
def test_settles(path):
    growth = record(path).growth(0)
    assert [line for line in growth["lines"] if line["certain"]] == [], growth
