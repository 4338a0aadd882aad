"""Reading and writing snapshot files: equal to pickle where pickle is harmless, and
harmless where it is not."""

import gzip
import io
import math
import os
import pickle
import pickletools
import random
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pickles import load_bytes, run, same

import memlab
from memlab import _core
from memlab._files.load import read_recording

DATA = Path(__file__).parents[1] / "data"
REAL = sorted(DATA.glob("*.pickle.gz"))

real_file = pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)


def write(recording, tmp_path, extras=False):
    path = tmp_path / "written.pickle"
    recording.write_pickle(path, extras)
    return path.read_bytes()


# ---- Plain data ----

integers = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from(
        [
            s * 2**k + d
            for k in (0, 7, 8, 15, 16, 31, 32)
            for s in (1, -1)
            for d in (0, -1)
        ]
    ),
    st.sampled_from([-(2**63), 2**63 - 1, 2**63, 2**64 - 1]),
)
# Every character, surrogates too: pickle writes them with surrogatepass.
texts = st.text(st.characters(exclude_categories=()), max_size=300)
scalars = st.none() | st.booleans() | integers | st.floats() | texts
plain = st.recursive(
    scalars,
    lambda item: (
        st.lists(item)
        | st.lists(item).map(tuple)
        | st.dictionaries(scalars.filter(lambda key: key == key), item)
    ),
    max_leaves=60,
)


@settings(max_examples=200, deadline=None)
@given(plain, st.sampled_from([2, 3, 4, 5]))
@example([1] * 3000, 4)
@example({i: str(i) for i in range(2500)}, 2)
@example("x" * 70000, 4)
def test_plain_data_loads_as_pickle_does(value, protocol):
    data = pickle.dumps(value, protocol)
    assert same(load_bytes(data), pickle.loads(data))
    assert same(load_bytes(bytearray(data)), value)
    # Python's own pickler written in Python batches and memoises differently.
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(value)
    assert same(load_bytes(out.getvalue()), value)


def test_shared_objects_stay_shared():
    frame = {"name": "f", "filename": "a.py", "line": 1}
    frames = [frame, frame]
    loaded = load_bytes(pickle.dumps([frames, frames, "text", [frame]], 4))
    assert loaded[0] is loaded[1]
    assert loaded[0][0] is loaded[0][1] is loaded[3][0]


def test_loaded_objects_have_the_right_reference_counts():
    data = pickle.dumps({"a": [1.5, ("x" * 20, {})]}, 4)
    counts = []
    for load in (load_bytes, pickle.loads):
        root = load(data)
        value = root["a"]
        counts.append(
            [sys.getrefcount(x) for x in (root, value, value[0], value[1], value[1][0])]
        )
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, 2**2000, -(2**2000), 2**64 - 1 + 2**71, b"", b"\xff"]
)
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_values_that_no_snapshot_has_load_as_pickle_does(value, protocol):
    loaded = load_bytes(pickle.dumps([value, value], protocol))
    assert loaded == [value, value] and type(loaded[0]) is type(value)


def test_strings_that_are_not_utf8():
    assert load_bytes(b"\x80\x04\x8c\x03a\xffb.") == "a\\xffb"


def test_keys_that_are_neither_text_nor_number():
    with pytest.raises(memlab.SnapshotError, match="neither text nor number"):
        load_bytes(pickle.dumps({(1, 2): 3}, 4))
    # Of a recording they are keys that nobody knows.
    snapshot = {"segments": [], "device_traces": [[]], (1, 2): 3}
    assert _core.Recording.from_bytes(pickle.dumps(snapshot, 4)).unread == {}


@pytest.mark.parametrize(
    "value", [bytearray(b"x"), {1, 2}, frozenset(), 1j, range(3), object]
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_types_are_refused(value, protocol):
    with pytest.raises(memlab.SnapshotError):
        load_bytes(pickle.dumps(value, protocol))


def test_cycles_are_refused():
    value = []
    value.append(value)
    with pytest.raises(memlab.SnapshotError, match="contains itself"):
        load_bytes(pickle.dumps(value, 4))
    value = {}
    value["x"] = [value]
    with pytest.raises(memlab.SnapshotError, match="contains itself"):
        load_bytes(pickle.dumps(value, 2))


@pytest.mark.parametrize("protocol", [0, 1])
def test_old_protocols_are_refused(protocol):
    with pytest.raises(memlab.SnapshotError, match="protocol 2 or newer"):
        load_bytes(pickle.dumps([1], protocol))


def test_load_needs_bytes():
    with pytest.raises(TypeError):
        load_bytes("text")


# ---- Real snapshots ----


def shape_of_sharing(snapshot):
    """How many different lists of frames and frames the trace refers to."""
    lists = [event["frames"] for trace in snapshot["device_traces"] for event in trace]
    return len({id(f) for f in lists}), len({id(f) for fs in lists for f in fs})


@real_file
def test_real_snapshots_load_as_pickle_does(path):
    truth = pickle.loads(gzip.decompress(path.read_bytes()))
    loaded = memlab.load(path)
    assert same(loaded, truth)
    assert shape_of_sharing(loaded) == shape_of_sharing(truth)


@real_file
def test_recordings_of_real_snapshots_keep_all_that_torch_wrote(path, tmp_path):
    truth = memlab.load(path)
    recording = read_recording(path)
    made = recording.to_dict()
    assert made == truth
    assert [list(e) for t in made["device_traces"] for e in t] == [
        list(e) for t in truth["device_traces"] for e in t
    ]
    assert list(made) == list(truth)
    written = write(recording, tmp_path)
    assert same(pickle.loads(written), made)
    assert same(load_bytes(written), made)
    assert shape_of_sharing(made) == shape_of_sharing(pickle.loads(written))


@real_file
def test_extras_leave_torchs_keys_alone(path, tmp_path):
    recording = read_recording(path)
    written = write(recording, tmp_path, extras=True)
    loaded = pickle.loads(written)
    extras = loaded.pop("memlab")
    assert same(loaded, recording.to_dict())
    assert extras["version"] == 1
    again = _core.Recording.from_bytes(written)
    assert write(again, tmp_path, extras=True) == written


def test_every_truncation_fails_cleanly():
    snapshot = memlab.load(REAL[0])
    snapshot["segments"] = snapshot["segments"][:2]
    snapshot["device_traces"] = [trace[:30] for trace in snapshot["device_traces"]]
    data = pickle.dumps(snapshot, 4)
    assert load_bytes(data) == snapshot
    for length in range(len(data)):
        with pytest.raises(memlab.SnapshotError):
            load_bytes(data[:length])
        with pytest.raises(memlab.SnapshotError):
            _core.Recording.from_bytes(data[:length])


VIEWER = """PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    SHORT_BINUNICODE BINUNICODE EMPTY_LIST EMPTY_DICT EMPTY_TUPLE LIST DICT TUPLE TUPLE1
    TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS MEMOIZE BINPUT LONG_BINPUT BINGET
    LONG_BINGET""".split()


@real_file
def test_torchs_viewer_can_read_what_is_written(path, tmp_path):
    written = write(read_recording(path), tmp_path, extras=True)
    for opcode, argument, _position in pickletools.genops(written):
        assert opcode.name in VIEWER
        if opcode.name == "PROTO":
            assert argument == 4
        if opcode.name == "LONG1":
            assert -(2**63) <= argument < 2**63


# ---- Recordings of any content ----

names = st.text(st.characters(exclude_categories=()), min_size=1, max_size=12)
frames = st.lists(
    st.fixed_dictionaries(
        {"name": names, "filename": names, "line": st.integers(0, 2**31 - 1)}
    ),
    max_size=5,
)
sizes = st.integers(0, 2**40)
signed = st.integers(-(2**63), 2**63 - 1)
addresses = st.integers(0, 2**62)


@st.composite
def events(draw, pools):
    action = draw(
        st.sampled_from(
            "alloc free_requested free_completed segment_alloc segment_free segment_map "
            "segment_unmap snapshot oom".split()
        )
    )
    event = {"action": action}
    if action == "oom":
        event["device_free"] = draw(st.integers(0, 2**63 - 1))
    else:
        event["addr"] = draw(addresses)
    event.update(size=draw(sizes), stream=draw(signed), time_us=draw(sizes))
    event.update(compile_context="N/A", user_metadata=draw(st.just("") | names))
    if pools:
        event["pool_id"] = draw(st.tuples(*[st.integers(0, 2**32 - 1)] * 2))
    event["frames"] = draw(frames)
    return event


@st.composite
def segments(draw, device):
    """Segments of one device by address, each full of blocks, as torch has them."""
    made = []
    end = 2**21
    for _ in range(draw(st.integers(0, 3))):
        address = end = end + draw(st.integers(0, 2**30))
        blocks = []
        for _ in range(draw(st.integers(1, 4))):
            state = draw(
                st.sampled_from(["active_allocated", "active_pending_free", "inactive"])
            )
            size = draw(st.integers(1, 2**30))
            blocks.append(
                {
                    "address": end,
                    "size": size,
                    "requested_size": draw(
                        st.integers(0, 2**40 if state == "inactive" else size)
                    ),
                    "state": state,
                    "frames": draw(frames),
                }
            )
            end += size
        active = [b for b in blocks if b["state"] != "inactive"]
        made.append(
            {
                "device": device,
                "address": address,
                "total_size": end - address,
                "allocated_size": sum(
                    b["size"] for b in active if b["state"] == "active_allocated"
                ),
                "active_size": sum(b["size"] for b in active),
                "requested_size": sum(b["requested_size"] for b in active),
                "stream": draw(signed),
                "segment_type": draw(st.sampled_from(["small", "large"])),
                "segment_pool_id": draw(st.tuples(addresses, addresses)),
                "is_expandable": draw(st.booleans()),
                "blocks": blocks,
                "frames": draw(frames),
            }
        )
    return made


@st.composite
def snapshots(draw):
    devices = draw(st.integers(0, 3))
    pools = draw(st.booleans())
    trace = st.lists(events(pools), max_size=8)
    snapshot = {
        "segments": [s for device in range(devices) for s in draw(segments(device))],
        "device_traces": [draw(trace) for _ in range(devices)],
    }
    divisions = {str(2**i): draw(st.integers(0, 64)) for i in range(16)}
    setting = st.booleans() | signed | st.floats(allow_nan=False) | names
    options = st.dictionaries(names, setting | st.just(divisions), max_size=4)
    if draw(st.booleans()):
        snapshot["allocator_settings"] = draw(options)
    if draw(st.booleans()):
        snapshot["external_annotations"] = draw(
            st.lists(
                st.fixed_dictionaries(
                    {
                        "stage": st.sampled_from(["START", "END"]),
                        "name": names,
                        "device": st.integers(-1, 63),
                        "time_us": sizes,
                    }
                ),
                max_size=3,
            )
        )
    return snapshot


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.sampled_from([2, 4, 5]), st.booleans())
def test_any_snapshot_survives(tmp_path_factory, snapshot, protocol, extras):
    recording = _core.Recording.from_bytes(pickle.dumps(snapshot, protocol))
    assert recording.to_dict() == snapshot
    written = write(recording, tmp_path_factory.getbasetemp(), extras)
    loaded = load_bytes(written)
    assert same(loaded, pickle.loads(written))
    if extras:
        del loaded["memlab"]
    assert same(loaded, recording.to_dict())


# ---- Files ----


def test_gzip_is_recognised_by_content(tmp_path):
    value = {"segments": [], "text": "x" * 5_000_000}
    data = pickle.dumps(value, 4)
    for number, packed in enumerate(
        [
            gzip.compress(data),
            gzip.compress(data[:100]) + gzip.compress(data[100:]),
            gzip.compress(data) + bytes(1000),
            gzip.compress(data, 0),
            gzip.compress(random.Random(1).randbytes(3_000_000)),
        ]
    ):
        path = tmp_path / f"{number}.pickle"
        path.write_bytes(packed)
        if number < 4:
            assert memlab.load(path) == value
        else:
            with pytest.raises(memlab.SnapshotError, match="protocol 2 or newer"):
                memlab.load(path)


@pytest.mark.parametrize(
    "size", [0, 1, 100, 2**16, 2**20 - 20, 2**20, 2**20 + 1, 2**22]
)
def test_gzip_of_any_size(tmp_path, size):
    """Around the size of the pieces in which files are read and unpacked."""
    value = random.Random(size).randbytes(size // 2).hex()
    data = pickle.dumps(value, 4)
    path = tmp_path / "x"
    for level in (0, 1):
        path.write_bytes(gzip.compress(data, level))
        assert memlab.load(path) == value


def test_every_truncation_of_a_gzip_file_fails_cleanly(tmp_path):
    data = gzip.compress(pickle.dumps({"segments": [], "text": "abc" * 40}, 4))
    path = tmp_path / "cut"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(memlab.SnapshotError, match=str(path)):
            memlab.load(path)


def test_damaged_gzip_file(tmp_path):
    data = bytearray(gzip.compress(pickle.dumps(list(range(1000)), 4)))
    data[200] ^= 0xFF
    path = tmp_path / "damaged"
    path.write_bytes(data)
    with pytest.raises(memlab.SnapshotError, match="damaged|protocol"):
        memlab.load(path)


def test_gzip_bomb_stops_at_the_limit(tmp_path):
    """256 MiB in 260 kB: beyond 64 MiB, 200 times the file is the most."""
    path = tmp_path / "bomb.gz"
    packer = zlib.compressobj(6, wbits=31)
    zeros = bytes(2**20)
    with open(path, "wb") as file:
        file.write(packer.compress(b"\x80\x04"))
        for _ in range(256):
            file.write(packer.compress(zeros))
        file.write(packer.flush())
    assert path.stat().st_size < 300_000
    before, after, text = run(
        """
        import json, resource, sys
        import memlab
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        before = peak()
        try:
            memlab.load(sys.argv[1])
        except memlab.SnapshotError as error:
            text = str(error)
        print(json.dumps([before, peak(), text]))
        """,
        str(path),
    )
    assert "unpack" in text and "gunzip" in text
    assert after - before < 160 << 20


def test_errors_name_the_file_and_a_remedy(tmp_path):
    path = tmp_path / "odd name.pickle"
    for data in (b"", b"hello", b"\x80\x04", pickle.dumps(7, 4)[:-1], b"\x1f\x8bxx"):
        path.write_bytes(data)
        with pytest.raises(memlab.SnapshotError) as caught:
            memlab.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "_dump_snapshot" in str(caught.value)
    with pytest.raises(memlab.SnapshotError, match="not a memory snapshot"):
        path.write_bytes(pickle.dumps(7, 4))
        read_recording(path)


def test_errors_are_errors_of_memlab():
    assert issubclass(memlab.SnapshotError, memlab.Error)
    assert issubclass(memlab.SnapshotError, ValueError)
    assert memlab.SnapshotError.__module__ == "memlab"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        memlab.load(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        memlab.load(tmp_path)


def test_paths_of_any_type(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps([1, 2], 4))
    assert memlab.load(str(path)) == memlab.load(os.fsencode(path)) == [1, 2]


def test_infinite_floats_and_nan():
    values = [math.inf, -math.inf, math.nan, -0.0]
    assert same(load_bytes(pickle.dumps(values, 4)), values)


def test_every_allocation_of_python_may_fail():
    """Each one of Python's own, once and for ever: MemoryError, and then all is well."""
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    failures = run(
        """
        import json, pickle
        import _testcapi
        from memlab import _core
        frames = [{"name": "f", "filename": "a.py", "line": 300}]
        event = dict(action="alloc", addr=2**40, size=5000, stream=0, time_us=2**50)
        snapshot = {"segments": [], "device_traces": [[dict(event, frames=frames)] * 3],
                    "allocator_settings": {"x": 1.5, "y": True, "z": "text"}}
        data = pickle.dumps(snapshot, 4)
        recording = _core.Recording.from_bytes(data)
        failures = []
        for make in (lambda: _core.load(data), recording.to_dict):
            for length in (1, 0):
                for start in range(1000):
                    made = None
                    _testcapi.set_nomemory(start, length and start + length)
                    try:
                        made = make()
                    except MemoryError:
                        pass
                    finally:
                        _testcapi.remove_mem_hooks()
                    if made is not None:
                        assert made == snapshot, made
                        break
                failures.append(start)
        print(json.dumps(failures))
        """
    )
    assert len(failures) == 4
    assert all(10 < count < 999 for count in failures)
