"""Estimated categories of torch's own snapshots against those that memlab recorded of the
same run, block by block at the peak."""

from pathlib import Path

import pytest

import memlab
from memlab import _core
from memlab._cli import main

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "estimated.py"


def blocks_at_peak(path):
    """{address: (bytes, category, exact, module)}."""
    recording = _core.Recording.from_bytes(path.read_bytes())
    moment = recording.peak(0)["peak"]["event"]
    columns = recording.columns("allocations", 0)
    texts = recording.columns("strings")
    offsets = texts["offsets"]
    names = [bytes(texts["bytes"][a:b]).decode() for a, b in zip(offsets, offsets[1:])]
    categories = _core.COLUMN_TEXTS["category"]
    return {
        columns["address"][i]: (
            columns["bytes"][i],
            categories[columns["category"][i]],
            bool(columns["exact"][i]),
            names[columns["module"][i]],
        )
        for i, (start, free) in enumerate(zip(columns["start"], columns["free"]))
        if start <= moment < free
    }


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["encoder", "convolutions", "late"])
def test_nine_tenths_of_the_peak_are_right(phantom_run, tmp_path, name):
    phantom_run(PROGRAM, name, tmp_path / "known.pickle", tmp_path / "torch.pickle")
    known = blocks_at_peak(tmp_path / "known.pickle")
    estimated = blocks_at_peak(tmp_path / "torch.pickle")
    assert known.keys() == estimated.keys()
    judged = right = 0
    for address, (size, category, _, _) in known.items():
        said = estimated[address]
        assert said[0] == size
        assert not said[2] or said[1] in ("unknown", "before_recording")
        if category not in ("unknown", "before_recording"):
            judged += size
            right += size * (said[1] == category)
    assert judged >= 0.8 * sum(block[0] for block in known.values())
    assert right >= 0.9 * judged


@pytest.mark.cuda
def test_calls_of_modules_have_names(phantom_run, tmp_path, capsys):
    path = tmp_path / "torch.pickle"
    phantom_run(PROGRAM, "encoder", tmp_path / "known.pickle", path)
    peak = _core.Recording.from_bytes(path.read_bytes()).peak(0)
    modules = {row["module"] for row in peak["by_module"]}
    lines = PROGRAM.read_text().splitlines()
    (outer,) = (i for i, text in enumerate(lines, 1) if "= model(tokens)" in text)
    (head,) = (
        i for i, text in enumerate(lines, 1) if "return self.head(self.layers" in text
    )
    assert f"estimated@{outer}.linear@{head}" in modules
    for file, said in ((path, True), (tmp_path / "known.pickle", False)):
        assert main.main(["report", str(file)]) == 0
        assert ("What it consists of, estimated" in capsys.readouterr().out) is said


@pytest.mark.cuda
def test_a_dump_with_extras_is_not_estimated(phantom_run, tmp_path):
    """The owners are those of the moment of the dump; without extras they are estimated."""
    done = phantom_run(f"""
import torch, memlab
memlab.record_memory_history()
model = torch.nn.Linear(1000, 1000).cuda()
model(torch.ones(8, 1000, device="cuda")).sum().backward()
memlab.dump_snapshot({str(tmp_path / "plain.pickle")!r})
memlab.dump_snapshot({str(tmp_path / "extras.pickle")!r}, extras=True)
""")
    assert done.returncode == 0
    assert "memlab" not in memlab.load(tmp_path / "plain.pickle")
    size = 1000 * 1000 * 4
    for name, exact in (("plain", False), ("extras", True)):
        blocks = blocks_at_peak(tmp_path / f"{name}.pickle").values()
        for category in ("parameter", "gradient"):
            (told,) = (b for b in blocks if b[1] == category and b[0] >= size)
            assert told[2] is exact, (name, category)
