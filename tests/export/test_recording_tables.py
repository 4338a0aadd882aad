"""Tables of a recording: columns, SQLite, CSV and Arrow, with the figures of Recording.peak."""

import collections
import csv
import os
import pickle
import sqlite3
import sys

import pytest
from exports import at_peak, by_line, real, small, written
from segments import BASE, HOSTILE, MIB, event

from memlab import _core
from memlab._errors import Error
from memlab._export import export, recording_tables

REAL = ("gpt2_oom.pickle.gz", "streams_expandable.pickle.gz")


# ---- Columns ----


def test_events_by_hand():
    columns = small().columns("events")
    assert {name: list(column) for name, column in columns.items()} == {
        "time_ns": [10**9, 10**9 + 10_000, 10**9 + 20_000, 10**9 + 30_000],
        "action": [0, 0, 1, 2],
        "address": [BASE, BASE + 512, BASE, BASE],
        "bytes": [500, 1000, 500, 500],
        "stream": [0] * 4,
        "allocation": [0, 1, 0, 0],
        "allocated": [512, 1536, 1024, 1024],
        "active": [512, 1536, 1536, 1024],
        "reserved": [2 * MIB] * 4,
        "stack": [columns["stack"][0], columns["stack"][1], 0, 0],
        "thread": [0] * 4,
        "backward": [0] * 4,
        "metadata": [0] * 4,
        "node": [0] * 4,
    }
    assert _core.COLUMN_TEXTS["action"][:3] == (
        "alloc",
        "free_requested",
        "free_completed",
    )


def test_allocations_by_hand():
    columns = small().columns("allocations")
    strings = recording_tables.Tables(small()).strings
    assert list(columns["start"]) == [0, 1]
    # What is never freed ends with the events.
    assert list(columns["free"]) == [2, 4]
    assert list(columns["end"]) == [3, 4]
    assert list(columns["start_ns"]) == [10**9, 10**9 + 10_000]
    assert list(columns["free_ns"]) == [10**9 + 20_000, 0]
    assert list(columns["bytes"]) == [512, 1024]
    assert list(columns["requested"]) == [500, 1000]
    assert list(columns["line"]) == [9, 7]
    assert [strings[i] for i in columns["file"]] == ["grow", "/u/lib/model.py"]
    assert [strings[i] for i in columns["function"]] == ["grow", "step"]


@pytest.mark.parametrize("name", REAL)
def test_allocations_live_at_the_peak(name):
    recording = real(name)
    event = at_peak(recording)
    columns = recording.columns("allocations")
    strings = recording_tables.Tables(recording).strings
    found = collections.Counter()
    categories = collections.Counter()
    for start, free, size, file, line, function, category in zip(
        *(
            columns[name]
            for name in ("start", "free", "bytes", "file", "line", "function", "category")
        )
    ):
        if start <= event < free:
            found[strings[file], line, strings[function]] += size
            categories[_core.COLUMN_TEXTS["category"][category]] += size
    assert found == by_line(recording)
    peak = recording.peak(0)
    assert categories == {k: v for k, v in peak["by_category"].items() if v}
    assert max(recording.columns("events")["allocated"]) == peak["peak"]["allocated_bytes"]


def test_wrong_tables():
    with pytest.raises(ValueError, match="no table 'lines': there are events"):
        small().columns("lines")
    with pytest.raises(IndexError):
        small().columns("events", 2)
    assert small().columns("stacks", 2)["parent"][0] == 0


# ---- SQLite ----


@pytest.mark.parametrize("name", REAL)
def test_sqlite(tmp_path, name):
    recording = real(name)
    path = written(recording, tmp_path, "x.sqlite")
    with sqlite3.connect(path) as database:
        ask = database.execute
        peak = recording.peak(0)["peak"]
        (at,) = ask("SELECT event FROM events ORDER BY allocated DESC, event").fetchone()
        assert at == at_peak(recording)
        assert ask(
            "SELECT sum(bytes) FROM allocations WHERE start <= ? AND free > ?", (at, at)
        ).fetchone() == (peak["allocated_bytes"],)
        lines = ask(
            "SELECT file, line, function, sum(bytes) FROM allocations "
            "WHERE start <= ? AND free > ? GROUP BY 1, 2, 3",
            (at, at),
        )
        assert {row[:3]: row[3] for row in lines} == by_line(recording)
        actions = collections.Counter(
            e["action"] for e in recording.to_dict()["device_traces"][0]
        )
        assert dict(ask("SELECT action, count(*) FROM events GROUP BY 1")) == actions
        segments = recording.to_dict()["segments"]
        assert ask("SELECT sum(bytes) FROM segments").fetchone() == (
            sum(s["total_size"] for s in segments),
        )
        # A stack, from its innermost frame on.
        number, event = ask("SELECT max(stack), event FROM events").fetchone()
        frames = ask(
            "SELECT function, file, line FROM stack_frames WHERE stack = ? ORDER BY depth",
            (number,),
        ).fetchall()
        entry = recording.to_dict()["device_traces"][0][event]
        assert frames == [(f["name"], f["filename"], f["line"]) for f in entry["frames"]]
    database.close()


def test_sqlite_has_all_devices_and_losses(tmp_path):
    told = [(10**9, "step", "", 0, 3)]
    path = written(small(told=told), tmp_path, "x.db")
    database = sqlite3.connect(path)
    ask = database.execute
    assert ask("SELECT device, name, events FROM devices").fetchall() == [
        (0, "cuda:0", 4),
        (1, "cuda:1", 2),
    ]
    assert ask("SELECT device, count(*) FROM events GROUP BY 1").fetchall() == [
        (0, 4),
        (1, 2),
    ]
    assert ask("SELECT kind, value_0 FROM notes").fetchall() == [("step", 3)]
    assert ask("SELECT device, allocation, stream FROM allocations").fetchall() == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 0),
    ]
    database.close()


def test_sizes_beyond_sqlites_integers(tmp_path):
    data = {
        "segments": [],
        "device_traces": [[event("alloc", (1 << 64) - 512, 511, stream=-1)]],
    }
    recording = _core.Recording.from_bytes(pickle.dumps(data))
    path = written(recording, tmp_path, "x.sqlite")
    database = sqlite3.connect(path)
    row = database.execute("SELECT address, stream FROM events").fetchone()
    assert row == (-512, -1)
    database.close()
    path.unlink()
    path = written(recording, tmp_path, "x.csv", table="events")
    with open(path, newline="") as file:
        (row,) = csv.DictReader(file)
    assert int(row["address"]) == (1 << 64) - 512


# ---- CSV ----


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_csv(tmp_path):
    recording = real(REAL[0])
    path = written(recording, tmp_path, "x.csv")
    at = at_peak(recording)
    live = [r for r in rows_of(path) if int(r["start"]) <= at < int(r["free"])]
    assert (
        sum(int(r["bytes"]) for r in live)
        == recording.peak(0)["peak"]["allocated_bytes"]
    )


def test_csv_of_a_table_and_a_device(tmp_path):
    path = written(small(), tmp_path, "x.csv", table="events", device=1)
    text = path.read_bytes().decode()
    assert text.endswith("\r\n") and text.count("\r\n") == 3
    assert [(r["device"], r["event"], r["action"], r["bytes"]) for r in rows_of(path)] == [
        ("1", "0", "alloc", "512"),
        ("1", "1", "oom", str(4 << 40)),
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+A1", "'+A1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("\r=1", "'\r=1"),
        ("\n=1", "'\n=1"),
        ("  =1", "'  =1"),
        ("\ufeff-1", "'\ufeff-1"),
        ("\uff1d1", "'\uff1d1"),
        ("  x", "  x"),
        ('a"b,c\r\nd', 'a"b,c\r\nd'),
        ("a=1", "a=1"),
    ],
)
def test_csv_holds_no_formulas(tmp_path, name, shown):
    path = written(small(name), tmp_path, "x.csv")
    row = rows_of(path)[0]
    assert (row["function"], row["file"]) == (shown, shown)
    # Numbers stay numbers.
    assert row["line"] == "9"


# ---- Arrow ----


@pytest.fixture
def pyarrow():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("table", ["allocations", "events"])
def test_arrow(pyarrow, tmp_path, ending, table):
    import pyarrow.ipc
    import pyarrow.parquet

    recording = real(REAL[1])
    path = written(recording, tmp_path, f"x.{ending}", table=table)
    if ending == "parquet":
        read = pyarrow.parquet.read_table(path)
    else:
        read = pyarrow.ipc.open_file(path).read_all()
    read.validate(full=True)
    columns = recording.columns(table)
    assert read.num_rows == len(columns["bytes"])
    assert read.column("bytes").to_pylist() == list(columns["bytes"])
    assert read.column("stack").to_pylist() == list(columns["stack"])
    if table == "allocations":
        strings = recording_tables.Tables(recording).strings
        assert read.column("file").to_pylist() == [strings[i] for i in columns["file"]]
        assert read.column("exact").to_pylist() == list(map(bool, columns["exact"]))
    else:
        texts = _core.COLUMN_TEXTS["action"]
        actions = [texts[i] for i in columns["action"]]
        assert read.column("action").to_pylist() == actions


def test_arrow_of_two_devices_and_hostile_names(pyarrow, tmp_path):
    import pyarrow.parquet

    name = HOSTILE[2]
    path = written(small(name), tmp_path, "x.parquet")
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [(r["device"], r["allocation"], r["bytes"]) for r in rows] == [
        (0, 0, 512),
        (0, 1, 1024),
        (1, 0, 512),
    ]
    assert rows[0]["function"] == name.replace("\ud800", "\ufffd")


def test_arrow_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Error, match=r"x.parquet: .* pip install 'memlab\[arrow\]'"):
        export.convert(small(), str(tmp_path / "x.parquet"))
    assert os.listdir(tmp_path) == []
