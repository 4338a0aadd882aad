"""Recordings in the formats of other tools, each read back by its own library or by a
decoder written here from its specification, with the figures of Recording.peak."""

import collections
import csv
import gzip
import json
import os
import pickle
import sqlite3
import stat
import sys
from pathlib import Path

import pytest
from modes import NEW
from segments import BASE, MIB, block, frame, segment
from test_pictures import MAIN, STEP
from test_viz import HOSTILE, event

from memlab import _core
from memlab._cli import main
from memlab._errors import Error
from memlab._export import export

DATA = Path(__file__).parents[1] / "data"
REAL = ("gpt2_oom.pickle.gz", "streams_expandable.pickle.gz")
US = 1_000_000


def real(name):
    return _core.Recording.from_bytes(gzip.decompress((DATA / name).read_bytes()))


def notes(*rows):
    """The table of notes; a row is (time in ns, kind, name, thread, number)."""
    return {
        "lost": 0,
        "time": [row[0] for row in rows],
        "kind": [row[1] for row in rows],
        "name": [row[2] for row in rows],
        "device": [-1] * len(rows),
        "thread": [row[3] for row in rows],
        "values": [v for row in rows for v in (row[4], 0, 0, 0, 0, 0, 0)],
    }


def small(name="grow", told=(), **more):
    """Two devices: on the first 512 bytes of NAME from event 0 to 2 and 1024 of MAIN from
    event 1 on, the peak; on the second one block without a stack, and out of memory."""
    stack = [frame(name, name, 9), MAIN]
    first = [
        event("alloc", BASE, 500, stack, time_us=US),
        event("alloc", BASE + 512, 1000, [STEP, MAIN], time_us=US + 10),
        event("free_requested", BASE, 500, time_us=US + 20),
        event("free_completed", BASE, 500, time_us=US + 30),
    ]
    second = [
        event("alloc", BASE, 512, time_us=US + 5),
        event("oom", 77, 4 << 40, stack, time_us=US + 6),
    ]
    blocks = [
        block(BASE, 512, 0, "inactive"),
        block(BASE + 512, 1024, 1000, frames=[STEP, MAIN]),
        block(BASE + 1536, 2 * MIB - 1536, 0, "inactive"),
    ]
    other = [block(BASE, 512, 512), block(BASE + 512, 2 * MIB - 512, 0, "inactive")]
    known = {"version": 1, "source": "cuda", "devices": [{}, {}], "notes": notes(*told)}
    data = {
        "segments": [segment(BASE, blocks), segment(BASE, other, stream=7, device=1)],
        "device_traces": [first, second],
        "memlab": known,
        **more,
    }
    return _core.Recording.from_bytes(pickle.dumps(data, 4))


def written(recording, tmp_path, name, **options):
    path = tmp_path / name
    export.convert(recording, str(path), **options)
    assert stat.S_IMODE(path.stat().st_mode) == NEW
    assert os.listdir(tmp_path) == [name]
    return path


def by_line(recording):
    lines = collections.Counter()
    for row in recording.peak(0)["by_line"]:
        lines[row["file"], row["line"], row["function"]] += row["bytes"]
    return lines


def at_peak(recording):
    """The event after which the peak is."""
    return recording.peak(0)["peak"]["event"] - 1


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
    strings = export._Tables(small()).strings
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
    strings = export._Tables(recording).strings
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
        strings = export._Tables(recording).strings
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


# ---- Perfetto ----


def fields(data):
    """The fields of a Protocol Buffers message: (number, value) in order."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length = varint()
            assert at + length <= len(data)
            yield key >> 3, data[at : at + length]
            at += length


def packed(data, **names):
    """One value by each name, of the field with its number."""
    values = dict(fields(data))
    return {name: values[number] for name, number in names.items() if number in values}


class Trace:
    """What a Perfetto trace says, by the field numbers of its .proto files."""

    def __init__(self, data):
        self.tracks = {}
        self.counters = collections.defaultdict(list)
        self.slices = []  # (track name, name, begin, end or None, annotations)
        self.instants = []
        names, values, opened = {}, {}, collections.defaultdict(list)
        for number, packet in fields(data):
            assert number == 1
            parts = packed(
                packet, time=8, event=11, interned=12, flags=13, track=60, sequence=10
            )
            assert parts["sequence"] == 1
            for kind, entry in fields(parts.get("interned", b"")):
                iid, text = packed(entry, iid=1, text=2).values()
                {2: names, 29: values}[kind][iid] = text.decode()
            if "track" in parts:
                self._add_track(parts["track"])
            if "event" in parts:
                self._add_event(parts["time"], parts["event"], names, values, opened)
        for stack in opened.values():
            self.slices += [(*one[:3], None, one[3]) for one in stack]

    def _add_track(self, data):
        track = packed(data, id=1, name=2, process=3, thread=4, parent=5, counter=8)
        name = track.get("name")
        if "process" in track:
            name = packed(track["process"], name=6)["name"]
        if "thread" in track:
            name = packed(track["thread"], name=5)["name"]
        assert track["id"] not in self.tracks
        assert track.get("parent", 0) in {0, *self.tracks}
        self.tracks[track["id"]] = (name.decode(), track.get("parent", 0))

    def _add_event(self, time, data, names, values, opened):
        event = packed(data, type=9, iid=10, track=11, name=23, value=30)
        track = self.tracks[event["track"]][0]
        if event["type"] == 4:
            self.counters[self.path(event["track"])].append((time, event["value"]))
            return
        if event["type"] == 2:
            track, name, begin, said = opened[event["track"]].pop()
            assert begin <= time
            self.slices.append((track, name, begin, time, said))
            return
        name = names[event["iid"]] if "iid" in event else event["name"].decode()
        said = {}
        for number, annotation in fields(data):
            if number == 4:
                one = packed(annotation, number=3, text=6, address=7, key=10, iid=17)
                key = one.pop("key").decode()
                ((kind, value),) = one.items()
                value = values[value] if kind == "iid" else value
                said[key] = value.decode() if kind == "text" else value
        if event["type"] == 3:
            self.instants.append((track, name, time, said))
        else:
            opened[event["track"]].append((track, name, time, said))

    def path(self, track):
        name, parent = self.tracks[track]
        return (*self.path(parent), name) if parent else (name,)


def trace_of(recording, tmp_path):
    return Trace(written(recording, tmp_path, "x.pftrace").read_bytes())


def test_perfetto_by_hand(tmp_path):
    trace = trace_of(small(), tmp_path)
    assert trace.counters["memlab", "cuda:0", "allocated"] == [
        (10**9, 0),
        (10**9, 512),
        (10**9 + 10_000, 1536),
        (10**9 + 20_000, 1024),
    ]
    assert trace.counters["memlab", "cuda:0", "active"][-1] == (10**9 + 30_000, 1024)
    assert trace.counters["memlab", "cuda:1", "reserved"] == [(10**9 + 5000, 2 * MIB)]
    by_name = {row[1]: row for row in trace.slices}
    track, _, begin, end, said = by_name["grow grow:9"]
    assert (track, begin, end) == ("allocations", 10**9, 10**9 + 20_000)
    assert said == {
        "name": f"b{BASE:x}_0",
        "bytes": 512,
        "requested_bytes": 500,
        "address": BASE,
        "category": "temporary",
        "phase": said["phase"],
        "stream": 0,
        "stack": "grow grow:9\nmain /u/train.py:3",
    }
    assert by_name["step model.py:7"][2:4] == (10**9 + 10_000, None)
    ((track, name, time, said),) = trace.instants
    assert (track, name, time) == ("cuda:1", "out of memory", 10**9 + 6000)
    assert said["requested_bytes"] == 4 << 40 and said["free_bytes"] == 77


@pytest.mark.parametrize("name", REAL)
def test_perfetto_figures(tmp_path, name):
    recording = real(name)
    trace = trace_of(recording, tmp_path)
    peak = recording.peak(0)
    most = {
        path[-1]: max(value for _, value in points)
        for path, points in trace.counters.items()
    }
    assert most == {
        key: peak["whole_peak"][f"{key}_bytes"] for key in ("allocated", "active", "reserved")
    }
    columns = recording.columns("allocations")
    slices = [row for row in trace.slices if row[0] == "allocations"]
    assert len(slices) == len(columns["bytes"])
    assert sum(row[4]["bytes"] for row in slices) == sum(columns["bytes"])
    # Those that are on at the time of the peak make it, but for others of that time.
    event = recording.columns("events")
    at = event["time_ns"][at_peak(recording)]
    sure = sum(r[4]["bytes"] for r in slices if r[2] < at and (r[3] or at + 1) > at)
    about = sum(r[4]["bytes"] for r in slices if r[2] <= at and (r[3] or at) >= at)
    assert sure <= peak["peak"]["allocated_bytes"] <= about


def test_perfetto_says_what_it_leaves_out(tmp_path):
    count = 20_003
    # The largest come last, and four of one size are on the border.
    sizes = [512] * 4 + [1024] * (count - 4)
    trace = []
    for size in sizes:
        trace += [
            event("alloc", BASE, size),
            event("free_requested", BASE, size),
            event("free_completed", BASE, size),
        ]
    blocks = [block(BASE, 2 * MIB, 0, "inactive")]
    data = {"segments": [segment(BASE, blocks)], "device_traces": [trace]}
    recording = _core.Recording.from_bytes(pickle.dumps(data))
    trace = trace_of(recording, tmp_path)
    tracks = {row[0] for row in trace.slices}
    assert tracks == {
        "allocations: the 20000 largest; the other 3 have at most 512 bytes each"
    }
    found = collections.Counter(row[4]["bytes"] for row in trace.slices)
    assert found == {512: 1, 1024: count - 4}


def test_perfetto_notes(tmp_path):
    told = [
        (10, "phase_begin", "warm up", 1, 1),
        (20, "region_begin", "step", 1, 2),
        (20, "region_begin", "inner", 1, 3),
        (25, "mark", "here", 2, 0),
        (30, "phase_end", "warm up", 1, 1),  # across the region's end
        (35, "region_end", "early", 2, 9),  # begun before
        (40, "region_end", "inner", 1, 3),
        (40, "region_end", "step", 1, 2),
        (50, "step", "", 1, 7),
        (60, "step", "", 1, 8),
        (70, "phase_begin", "open", 1, 4),
    ]
    recording = small(told=told)
    trace = trace_of(recording, tmp_path)
    last = 10**9 + 30_000
    noted = {row[1]: (row[0], *row[2:4]) for row in trace.slices if row[0] != "allocations"}
    assert noted == {
        "warm up": ("thread 1", 10, 30),
        "step": ("crossing slices", 20, 40),
        "inner": ("crossing slices", 20, 40),
        "early": ("thread 2", 10, 35),
        "step 7": ("steps", 10, 50),
        "step 8": ("steps", 50, 60),
        "open": ("thread 1", 70, last),
    }
    assert ("marks", "here", 25, {}) in trace.instants


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_perfetto(tmp_path, name):
    told = [(10, "phase_begin", name, 0, 1), (20, "phase_end", name, 0, 1)]
    trace = trace_of(small(name, told), tmp_path)
    shown = name.replace("\ud800", "\ufffd")
    assert shown in {row[1] for row in trace.slices}


def test_perfettos_own_parser(tmp_path):
    trace_pb2 = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2",
        reason="perfetto is not installed",
    )
    from google.protobuf.unknown_fields import UnknownFieldSet

    path = written(real(REAL[0]), tmp_path, "x.perfetto-trace")
    trace = trace_pb2.Trace.FromString(path.read_bytes())
    for packet in trace.packet:
        for message in (packet, packet.track_event, packet.track_descriptor):
            assert len(UnknownFieldSet(message)) == 0
    counters = {
        p.track_descriptor.uuid: p.track_descriptor.name
        for p in trace.packet
        if p.track_descriptor.HasField("counter")
    }
    assert sorted(counters.values()) == ["active", "allocated", "reserved"]
    most = max(
        p.track_event.counter_value
        for p in trace.packet
        if counters.get(p.track_event.track_uuid) == "allocated"
    )
    assert most == real(REAL[0]).peak(0)["peak"]["allocated_bytes"]


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

    monkeypatch.setattr(export._Tables, "rows", fail)
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
