"""Recordings in the formats of other tools: stacks, JSON, the command that converts, and what
holds for all formats."""

import collections
import json
import os
import pickle
import sqlite3
from pathlib import Path

import pytest
from exports import notes, real, small, written
from perfetto_trace import trace_of
from segments import BASE, HOSTILE, event, frame

from memlab import _core
from memlab._cli import main
from memlab._errors import Error
from memlab._export import export, recording_tables

DATA = Path(__file__).parents[1] / "data"
REAL = ("gpt2_oom.pickle.gz", "streams_expandable.pickle.gz")


# ---- Stacks ----


@pytest.mark.parametrize("name", REAL)
def test_speedscope(tmp_path, name):
    recording = real(name)
    path = written(recording, tmp_path, "x.speedscope.json")
    file = json.loads(path.read_text())
    # What https://www.speedscope.app/file-format-schema.json requires.
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]
    for one in frames:
        assert isinstance(one["name"], str)
        assert set(one) <= {"name", "file", "line", "col"}
    (profile,) = file["profiles"]
    assert profile["type"] == "sampled" and profile["unit"] == "bytes"
    assert profile["startValue"] == 0
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(0 <= i < len(frames) for sample in profile["samples"] for i in sample)
    peak = recording.peak(0)
    assert sum(profile["weights"]) == profile["endValue"]
    assert profile["endValue"] == peak["peak"]["allocated_bytes"]
    found = collections.Counter()
    for sample, weight in zip(profile["samples"], profile["weights"]):
        found[tuple((frames[i]["name"], frames[i].get("line", 0)) for i in sample)] += (
            weight
        )
    expected = collections.Counter()
    for row in peak["by_stack"]:
        stack = tuple((f["name"], f["line"]) for f in reversed(row["frames"]))
        expected[stack or ((row["reason"], 0),)] += row["bytes"]
    assert found == expected


def test_folded(tmp_path):
    path = written(small(), tmp_path, "x.folded")
    assert path.read_text().splitlines() == [
        "cuda:0;main train.py:3;step model.py:7 1024",
        "cuda:0;main train.py:3;grow grow:9 512",
        "cuda:1;recorded without frames 512",
    ]
    one = small().stacks_folded(0).decode().splitlines()
    assert one[0].startswith("cuda:0;")
    with pytest.raises(IndexError):
        small().stacks_folded(2)


@pytest.mark.parametrize("name", REAL)
def test_folded_adds_up(name):
    recording = real(name)
    lines = recording.stacks_folded(None).decode().splitlines()
    total = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert total == recording.peak(0)["peak"]["allocated_bytes"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_texts(name):
    recording = small(name)
    lines = recording.stacks_folded(0).decode().split("\n")
    assert len(lines) == 3 and lines[2] == ""
    assert lines[1].count(";") == 2 and lines[1].endswith(" 512")
    file = json.loads(recording.stacks_speedscope(0))
    names = {f["name"] for f in file["shared"]["frames"]}
    assert any(n[:3] == name[:3] for n in names)


# ---- The command, and all formats ----


def every_format():
    return [(name, ends[0]) for name, (ends, *_) in export.FORMATS.items()]


def needs(name):
    if name in ("arrow", "parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.parametrize(("name", "ending"), every_format())
def test_convert(tmp_path, capsys, name, ending):
    needs(name)
    out = tmp_path / f"out{ending.upper()}"
    file = DATA / REAL[0]
    assert main.main(["convert", str(file), str(out)]) == 0
    assert capsys.readouterr().out == f"Wrote {out}\n"
    other = tmp_path / "other.txt"
    assert main.main(["convert", str(file), str(other), "--to", name]) == 0
    if name not in ("html", "sqlite"):
        assert other.read_bytes() == out.read_bytes()
    assert out.stat().st_size == other.stat().st_size


@pytest.mark.parametrize(("name", "ending"), every_format())
def test_formats_of_little(tmp_path, name, ending):
    """No events, no devices, two devices."""
    needs(name)
    empty = {"segments": [], "device_traces": [[]]}
    for data in (empty, {**empty, "device_traces": []}):
        recording = _core.Recording.from_bytes(pickle.dumps(data))
        written(recording, tmp_path, "x" + ending).unlink()
    written(small(), tmp_path, "x" + ending).unlink()


@pytest.mark.parametrize(("name", "ending"), every_format())
def test_failure_leaves_the_old_file(tmp_path, name, ending, monkeypatch):
    needs(name)
    folder = tmp_path / ("x" + ending)
    folder.mkdir()
    with pytest.raises(OSError):
        export.convert(small(), str(folder))
    assert os.listdir(tmp_path) == ["x" + ending] and os.listdir(folder) == []
    with pytest.raises(OSError):
        export.convert(small(), str(tmp_path / "none" / ("x" + ending)))


def test_a_writer_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("old")

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(recording_tables.Tables, "rows", fail)
    with pytest.raises(MemoryError):
        export.convert(small(), str(path))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.csv"]


def test_wrong_options(tmp_path, capsys):
    with pytest.raises(Error, match=r"x.txt: expected a name that ends in .*\.sqlite"):
        export.convert(small(), str(tmp_path / "x.txt"))
    with pytest.raises(Error, match="leave --table out"):
        export.convert(small(), str(tmp_path / "x.sqlite"), table="events")
    with pytest.raises(ValueError, match="devices 0 to 1, no 2"):
        export.convert(small(), str(tmp_path / "x.csv"), device=2)
    file = str(DATA / REAL[0])
    for argv in (["x.csv", "--table", "lines"], ["x.csv", "--to", "xls"]):
        with pytest.raises(SystemExit) as end:
            main.main(["convert", file, *argv])
        assert end.value.code == 2
    assert main.main(["convert", file, str(tmp_path / "x.doc")]) == 1
    assert "expected a name" in capsys.readouterr().err


def test_ranks(tmp_path):
    parts = []
    for rank in (0, 1):
        told = [(10**9, "step", "", 0, rank)]
        data = small(told=told).to_dict()
        known = {"version": 1, "source": "cuda", "devices": [{}, {}]}
        known["notes"] = notes(*told)
        known["ranks"] = [{"rank": rank, "local_rank": rank, "pid": 7}]
        data["memlab"] = known
        parts.append(
            (_core.Recording.from_bytes(pickle.dumps(data)), f"rank{rank}.pickle", rank)
        )
    merged = _core.merge(parts)
    path = written(merged, tmp_path, "x.sqlite")
    database = sqlite3.connect(path)
    names = database.execute("SELECT name FROM devices").fetchall()
    assert [n for (n,) in names] == [merged.device_name(d) for d in range(4)]
    assert database.execute("SELECT rank, value_0 FROM notes").fetchall() == [
        (0, 0),
        (1, 1),
    ]
    database.close()
    path.unlink()
    trace = trace_of(merged, tmp_path)
    roots = [name for name, parent in trace.tracks.values() if parent == 0]
    assert roots == ["rank 0", "rank 1"]
    assert len(trace.slices) == 2 * len(trace_of_one(tmp_path).slices) + 2


def trace_of_one(tmp_path):
    (tmp_path / "x.pftrace").unlink()
    return trace_of(small(), tmp_path)


# ---- JSON ----


def expanded(file):
    """What version 2 of FILE says, as torch's own dictionary says it."""

    def frames_of(stack):
        while stack:
            frame, stack = file["stacks"][stack]
            yield file["frames"][frame]

    def whole(value):
        if isinstance(value, list):
            return [whole(part) for part in value]
        if not isinstance(value, dict):
            return value
        return {
            key: list(frames_of(part)) if key == "frames" else whole(part)
            for key, part in value.items()
        }

    return {
        key: whole(part)
        for key, part in file.items()
        if key not in ("version", "frames", "stacks")
    }


@pytest.mark.parametrize("name", [*REAL, "torch_snapshots/compiled-torch2.15.0.pickle.gz"])
def test_json_has_one_table_of_stacks(name, tmp_path):
    recording = real(name)
    plain = json.loads(json.dumps(recording.to_dict()))
    path = written(recording, tmp_path, "x.json")
    file = json.loads(path.read_text())
    assert list(file)[:3] == ["version", "frames", "stacks"] and file["version"] == 2
    assert all(parent < i for i, (_, parent) in enumerate(file["stacks"]) if i)
    assert expanded(file) == plain
    shared = path.stat().st_size
    path.unlink()
    path = written(recording, tmp_path, "x.json", expand=True)
    assert json.loads(path.read_text()) == plain
    assert path.stat().st_size > shared


def test_json_of_shared_stacks_is_not_multiplied(tmp_path):
    """Ten thousand events of one stack of two hundred frames."""
    stack = [frame(f"f{i}", "a.py", i + 1) for i in range(200)]
    events = [event("alloc", BASE + 512 * i, 512, stack) for i in range(10_000)]
    snapshot = {"segments": [], "device_traces": [events]}
    recording = _core.Recording.from_bytes(pickle.dumps(snapshot, 4))
    path = written(recording, tmp_path, "x.json")
    assert path.stat().st_size < 200 * len(events)
    assert expanded(json.loads(path.read_text())) == json.loads(json.dumps(snapshot))


def test_json_is_json_whatever_names_and_numbers_there_are(tmp_path):
    snapshot = {
        "segments": [],
        "device_traces": [[event("alloc", -1 << 62, 0, [frame('"\\\u2028', "\ud800", 1)])]],
        "allocator_settings": {"a": float("nan"), "b": 1e300, "\x00": -0.1},
    }
    recording = _core.Recording.from_bytes(pickle.dumps(snapshot, 4))
    path = written(recording, tmp_path, "x.json")
    settings = {"a": None, "b": 1e300, "\x00": -0.1}
    file = json.loads(path.read_text())
    assert file["allocator_settings"] == settings
    assert file["frames"][1] == frame('"\\\u2028', "\ud800", 1)
    assert file["device_traces"][0][0]["addr"] == -1 << 62


def test_expand_is_for_json(tmp_path):
    with pytest.raises(Error, match="--expand is for json, not for pickle: leave it out"):
        export.convert(small(), str(tmp_path / "x.pickle"), expand=True)
