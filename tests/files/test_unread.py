"""Snapshots as torch's own recorder writes them, and what a bad value in one costs."""

import gzip
import json
import math
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount

import memlab
from memlab import _core
from memlab._compare import merge
from memlab._files import load
from memlab._report import report

DATA = Path(__file__).resolve().parents[1] / "data"
TORCHS = sorted((DATA / "torch_snapshots").glob("*.pickle.gz"))
REAL = [*TORCHS, *sorted(DATA.glob("*.pickle.gz"))]


def loaded(path):
    """The file at PATH as pickle has it: it is ours."""
    with gzip.open(path) as file:
        return pickle.load(file)


def read(snapshot):
    return _core.Recording.from_bytes(pickle.dumps(snapshot, 4))


# ---- torch's own ----


def ends(snapshot, device):
    """Bytes by kind at the end, of the segments' blocks alone."""
    sums = dict.fromkeys(("allocated", "active", "requested", "reserved"), 0)
    for segment in snapshot["segments"]:
        if segment["device"] == device:
            sums["reserved"] += segment["total_size"]
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    sums["active"] += block["size"]
                    sums["requested"] += block["requested_size"]
                if block["state"] == "active_allocated":
                    sums["allocated"] += block["size"]
    return sums


def highest(events, changes):
    """The most of what CHANGES, a sign by action, adds up to, and what it ends at."""
    now = most = 0
    for event in events:
        now += changes.get(event["action"], 0) * event["size"]
        most = max(most, now)
    return most, now


REQUESTED = {"alloc": 1, "free_completed": -1}
RESERVED = {
    "segment_alloc": 1,
    "segment_map": 1,
    "segment_free": -1,
    "segment_unmap": -1,
}


@pytest.mark.parametrize("path", TORCHS, ids=lambda path: path.name.split(".pickle")[0])
def test_torchs_own_snapshots_are_read(path):
    snapshot = loaded(path)
    recording = load.read_recording(path, quiet=True)
    lost = {key: len(snapshot.get(key, ())) for key in ("host_segments", "host_traces")}
    # A frame without a line, which torch writes as 2**64-1, has lost nothing.
    assert recording.unread == {key: count for key, count in lost.items() if count}
    seen = 0
    for device, events in enumerate(snapshot["device_traces"]):
        if not events:
            continue
        seen += 1
        answer = recording.peak(device)
        assert answer["events"] == len(events)
        assert answer["mismatches"] == 0
        sums = ends(snapshot, device)
        last = recording.peak(device, len(events) - 1)["peak"]
        assert {key: last[f"{key}_bytes"] for key in sums} == sums
        for key, changes in (("requested", REQUESTED), ("reserved", RESERVED)):
            most, end = highest(events, changes)
            assert end == sums[key], "the recorder missed what came before"
            assert answer["whole_peak"][f"{key}_bytes"] == most
    assert seen == (2 if path.name.startswith("two_gpus") else 1)
    ooms = [e for t in snapshot["device_traces"] for e in t if e["action"] == "oom"]
    assert len(ooms) == (1 if path.name.startswith("out_of_memory") else 0)
    told = [recording.oom(device) for device in range(recording.device_count)]
    assert sum(answer is not None for answer in told) == len(ooms)


def has_frame_without_line(snapshot):
    return any(
        frame["line"] == 2**64 - 1
        for trace in snapshot["device_traces"]
        for event in trace
        for frame in event.get("frames", ())
    )


def test_each_kind_of_program_is_there():
    names = {path.name.split("-torch")[0] for path in TORCHS}
    assert names == {
        "compiled",
        "scripted",
        "graph_captured",
        "two_gpus",
        "out_of_memory",
        "expandable",
        "native_frames",
        "anomaly",
        "pinned",
    }
    without_line = [path.name for path in TORCHS if has_frame_without_line(loaded(path))]
    assert any(name.startswith("compiled") for name in without_line)


def memlab_says(*words):
    done = subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_every_command_reads_it_and_says_what_it_lacks(tmp_path):
    snapshot = loaded(next(path for path in TORCHS if path.name.startswith("compiled")))
    event = next(e for trace in snapshot["device_traces"] for e in trace if e["frames"])
    event["frames"] = [{**event["frames"][0], "line": -1}, *event["frames"][1:]]
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps(snapshot, 4))
    said = (
        "The file has 1 value that could not be read, taken as unknown: frame.line 1."
    )
    assert memlab_says("report", path).stdout.count(said) == 1
    assert memlab_says("report", "--markdown", path).stdout.count("frame.line 1") == 1
    answer = json.loads(memlab_says("report", "--json", path).stdout)
    assert answer["unread"] == {"frame.line": 1}
    for words in (
        ("explain", path),
        ("tune", path),
        ("replay", path),
        ("diff", path, path),
        ("convert", path, tmp_path / "a.json"),
        ("convert", path, tmp_path / "a.pickle"),
    ):
        assert said in memlab_says(*words).stderr, words
    # What was written says so, too.
    assert load.read_recording(tmp_path / "a.pickle", True).unread == {"frame.line": 1}
    page = tmp_path / "a.html"
    memlab_says("view", path, "--out", page)
    assert b'"unread":{"frame.line":1}' in page.read_bytes()


def test_what_a_newer_memlab_adds_is_told_and_kept(tmp_path):
    """Its keys are skipped, at each depth; all else reads as before."""
    snapshot = pickle.loads(memlab_recording(tmp_path))
    before = read(snapshot)
    assert before.unread == {}
    snapshot["memlab"]["lists"] = [1, 2, 3]
    snapshot["memlab"]["devices"][1]["lists"] = {"a": [1], "b": [2]}
    path = tmp_path / "newer.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    said = (
        "The file has 2 values that could not be read, taken as unknown: memlab.newer 2; "
        "a newer memlab may read memlab.newer."
    )
    assert said in " ".join(memlab_says("report", path).stdout.split())
    assert said in memlab_says("explain", path).stderr
    recording = load.read_recording(path, True)
    assert recording.unread == {"memlab.newer": 2}
    assert recording.to_dict() == before.to_dict()
    assert recording.peak(1) == before.peak(1)
    recording.write_pickle(tmp_path / "again.pickle", True)
    again = load.read_recording(tmp_path / "again.pickle", True)
    assert again.unread == recording.unread


# ---- One bad value ----

STRANGE = [
    None,
    "x",
    "",
    "\ud800",
    b"x",
    -1,
    -(2**63),
    2**31,
    2**63,
    2**64 - 1,
    2**70,
    -(2**70),
    1.5,
    math.nan,
    True,
    [],
    {},
    (),
    [1, "x", None],
    {"size": "x"},
]
DELETED = object()


def containers(value, found=None):
    """All lists and dicts in VALUE, each once."""
    found = {} if found is None else found
    if isinstance(value, (dict, list, tuple)) and id(value) not in found:
        found[id(value)] = value
        for part in value.values() if isinstance(value, dict) else value:
            containers(part, found)
    return found


def damage(draw, snapshot):
    """Puts something strange into SNAPSHOT; what was changed, where, and what is there."""
    places = [part for part in containers(snapshot).values() if isinstance(part, dict)]
    places += [part for part in containers(snapshot).values() if isinstance(part, list)]
    place = draw.choice([part for part in places if part])
    key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
    value = draw.choice([*STRANGE, DELETED])
    if value is not DELETED:
        place[key] = value
    elif isinstance(place, dict):
        del place[key]
    else:
        place[key] = value = None  # a list that is shorter is another list
    return place, key, value


def compare(snapshot, out, damaged):
    """Asserts that OUT is SNAPSHOT but for what is in the objects DAMAGED, and what follows
    from their places."""
    if id(snapshot) in damaged:
        return
    if isinstance(snapshot, dict):
        assert isinstance(out, dict)
        for key, part in snapshot.items():
            if key == "forward_frames" and "action" not in snapshot:
                continue  # A block's and a segment's follow from the event that made them.
            if key in out or id(part) not in damaged:
                compare(part, out[key], damaged)
    elif isinstance(snapshot, list):
        assert isinstance(out, list)
        if len(out) == len(snapshot):
            for part, other in zip(snapshot, out):
                compare(part, other, damaged)
        else:
            # What could not be kept is not there; all else is, in its order.
            left = [part for part in snapshot if not hit(part, damaged)]
            rest = iter(out)
            for part in left:
                assert any(part == other for other in rest)
    else:
        assert snapshot == out or (snapshot != snapshot and out != out)


def hit(part, damaged):
    return any(key in damaged for key in containers(part))


def place_of(segment):
    """By what memlab orders SEGMENT: one that is of no device is of the first."""
    device = segment.get("device")
    return device if type(device) is int else 0, segment["address"] % 2**64


def in_order(snapshot):
    """Segments lie by device and address in what memlab writes."""
    if isinstance(snapshot.get("segments"), list):
        try:
            snapshot["segments"].sort(key=place_of)
        except (AttributeError, KeyError, TypeError):
            pass
    return snapshot


# What an event's or a frame's value must be, besides by type.
FITS = {
    "event.action": lambda v: isinstance(v, str),
    "event.size": lambda v: type(v) is int and 0 <= v < 2**63,
    "event.stream": lambda v: type(v) is int and -(2**63) <= v < 2**64,
    "event.time_us": lambda v: type(v) is int and 0 <= v <= (2**64 - 1) // 1000,
    "event.user_metadata": lambda v: isinstance(v, str),
    "event.frames": lambda v: isinstance(v, list),
    "frame.name": lambda v: isinstance(v, str),
    "frame.filename": lambda v: isinstance(v, str),
    "frame.line": lambda v: type(v) is int and 0 <= v < 2**31,
}


def expected(place, key, value, before):
    """What must be counted of an event's or a frame's value; None: not known here."""
    if not isinstance(place, dict):
        return None
    owner = "event" if "action" in place or key == "action" else "frame"
    if owner == "frame" and not {"filename", "name"} & {*place, key}:
        return None
    name = f"{owner}.{key}"
    if name not in FITS or "stage" in place or key in ("stage", "device_free"):
        return None
    if value is DELETED:
        return {} if key == "frames" else {name: 1}
    if key == "frames" and value:
        return None
    fits = FITS[name](value)
    return {} if fits else {name: 1}


def check_damaged(seed, path):
    draw = random.Random(seed)
    snapshot = in_order(loaded(path))
    for key in "host_segments", "host_traces":
        snapshot.get(key, []).clear()
    for part in containers(snapshot).values():
        if isinstance(part, dict) and part.get("line", 0) >= 2**31:
            part["line"] = 0
    before = read(snapshot).unread
    changes = [damage(draw, snapshot) for _ in range(draw.choice([1, 1, 1, 4]))]
    told = f"seed {seed}, {path.name}, " + ", ".join(
        f"{key!r} {'deleted' if value is DELETED else repr(value)}"
        for _, key, value in changes
    )
    if any(place is snapshot for place, _, _ in changes):
        try:
            recording = read(snapshot)
        except memlab.SnapshotError as error:
            assert "not a memory snapshot" in str(error), told
            return 0
    else:
        recording = read(snapshot)
    unread = recording.unread
    try:
        out = recording.to_dict()
        damaged = {id(place) for place, _, _ in changes}
        try:
            compare(snapshot, out, damaged)
        except AssertionError:
            # What was changed may be where a segment lies, and is where it lies then.
            compare(in_order(snapshot), out, damaged)
        if len(changes) == 1:
            wanted = expected(*changes[0], before)
            if wanted is not None:
                more = {key: n - before.get(key, 0) for key, n in unread.items()}
                assert {key: n for key, n in more.items() if n} == wanted
        for device in range(recording.device_count):
            recording.peak(device)
        recording.page_data()
        recording.trace_text()
        json.dumps(report.report(recording, None))
    except Exception as error:
        raise AssertionError(f"{told}: {error!r}, unread {unread}") from error
    return sum(unread.values())


def sizes(value):
    """All sizes in VALUE, a snapshot, with the keys that have them."""
    for part in containers(value).values():
        if isinstance(part, dict):
            for key, item in part.items():
                if key.endswith("size") and key != "max_split_size":
                    yield key, item


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**70])
def test_sizes_that_torch_cannot_write(tmp_path, size):
    """They are unknown, once; what is saved again holds what was taken for them."""
    snapshot = in_order(loaded(DATA / "streams_expandable.pickle.gz"))
    segment = next(s for s in snapshot["segments"] if s["blocks"][0]["size"] > 512)
    block = segment["blocks"][0]
    event = next(e for e in snapshot["device_traces"][0] if e["action"] == "alloc")
    whole = block["size"]
    block["size"] = block["requested_size"] = segment["requested_size"] = size
    event["size"] = size
    event["stream"] = 2**64 - 1  # a handle: these have all 64 bits
    recording = read(snapshot)
    lost = {
        "event.size": 1,
        "block.size": 1,
        "block.requested_size": 1,
        "segment.requested_size": 1,
    }
    assert recording.unread == lost
    for _ in range(2):
        out = recording.to_dict()
        assert all(0 <= number < 2**63 for _, number in sizes(out))
        taken = next(s for s in out["segments"] if s["address"] == segment["address"])
        assert taken["blocks"][0]["size"] == whole
        recording.write_pickle(tmp_path / "again.pickle", True)
        recording = load.read_recording(tmp_path / "again.pickle", True)
        assert recording.unread == lost
        assert recording.to_dict() == out


@pytest.mark.nightly
def test_a_bad_value_costs_that_value():
    found = 0
    count = amount("BAD_VALUES", 60)
    for seed in range(count):
        found += check_damaged(seed, REAL[seed % len(REAL)]) > 0
    print(f"{count} damaged snapshots, seeds 0 to {count - 1}")
    # The others were given something that may be there.
    assert found > count // 3


@pytest.mark.nightly
def test_bad_values_of_memlabs_own_key(tmp_path):
    """Whatever is wrong below "memlab", torch's keys are as they were."""
    count = amount("BAD_VALUES", 60)
    source = memlab_recording(tmp_path)
    found = 0
    for seed in range(count):
        draw = random.Random(seed)
        snapshot = pickle.loads(source)
        clean = read(snapshot)
        changes = [damage(draw, snapshot["memlab"]) for _ in range(draw.choice([1, 3]))]
        told = f"seed {seed}: {[(key, value) for _, key, value in changes]}"
        try:
            recording = read(snapshot)
            out = recording.to_dict()
            # Frames are in it, too, as they are the objects of the events.
            frames = {
                id(p) for p, _, _ in changes if isinstance(p, list) or "name" in p
            }
            for part in ("segments", "device_traces"):
                compare(snapshot[part], out[part], frames)
            for device in range(recording.device_count):
                answer = recording.peak(device)["peak"]
                assert answer["event"] == clean.peak(device)["peak"]["event"]
            json.dumps(report.report(recording, None))
        except Exception as error:
            raise AssertionError(f"{told}: {error!r}") from error
        found += bool(recording.unread)
    print(f"{count} damaged keys, seeds 0 to {count - 1}")
    assert found > count // 3


def memlab_recording(tmp_path):
    """The pickle of a merged recording of two ranks that has all parts of the key."""
    paths = []
    for rank in (0, 1):
        snapshot = loaded(DATA / "streams_expandable.pickle.gz")
        events = len(snapshot["device_traces"][0])
        snapshot["memlab"] = {
            "version": 1,
            "source": "cuda",
            "has_segments": True,
            "devices": [
                {
                    "overwritten_events": 0,
                    "dropped_events": 0,
                    "lost_stacks": 0,
                    "lost_names": 0,
                    "peak": {
                        "allocated": 1,
                        "active": 1,
                        "requested": 1,
                        "reserved": 1,
                    },
                    "tags": {
                        "position": [0, 1],
                        "addr": [512, 1024],
                        "category": ["parameter", "gradient"],
                        "name": ["a", "b"],
                        "module": ["m", ""],
                    },
                    "flags": "@" * events,
                    "block_bytes": [0] * events,
                    "thread": [1] * events,
                    "uses": {"addr": [1, 2], "position": [0, 1]},
                }
            ],
            "notes": {
                "lost": 0,
                "time": [1, 2],
                "kind": ["step", "mark"],
                "name": ["", "x"],
                "device": [-1, 0],
                "thread": [0, 0],
                "values": [0] * 14,
            },
            "ranks": [{"rank": rank, "local_rank": rank, "world_size": 2, "pid": 7}],
        }
        path = tmp_path / f"rank{rank}.pickle"
        path.write_bytes(pickle.dumps(snapshot, 4))
        paths.append(path)
    merged = merge.merge(paths)
    merged.write_pickle(tmp_path / "merged.pickle", True)
    return (tmp_path / "merged.pickle").read_bytes()
