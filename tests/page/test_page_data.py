"""The page's data, read back by page_reader.py, is what the same recording answers."""

import collections
import gzip
import json
import os
import pickle
import random
import shutil
import subprocess
from pathlib import Path

import page_reader
import pytest

import memlab
from memlab import _core
from memlab._files import load
from memlab._page import page as _page

DATA = Path(__file__).parents[1] / "data"
MIB = 1 << 20
EVENTS = 65536  # of a chunk


def record_file(path):
    """A file with steps, a phase and a few blocks, by the scripted source."""
    script = _core.Script()
    script.reset()
    script.emit("segment_alloc", 1 << 40, 20 << 20)
    with memlab.MemorySnapshot(source="script", file=path):
        for k in range(40):
            with memlab.phase(f"phase {k % 3}"):
                script.emit("alloc", (1 << 40) + k * MIB // 4, MIB // 4, time=k)
            if k % 2:
                script.emit("free_requested", (1 << 40) + k * MIB // 4, MIB // 4)
                script.emit("free_completed", (1 << 40) + k * MIB // 4, MIB // 4)
            memlab.step()


def recorded(name):
    return _core.Recording.from_bytes(gzip.decompress((DATA / name).read_bytes()))


def sums(page, device, event):
    """Bytes after EVENT by line, module and category, as Recording.peak() names them."""
    head = page.head
    text, kinds, lines = head["strings"], head["kinds"], head["lines"]
    by_line, by_module, by_category = (collections.Counter() for _ in range(3))
    for row in page.devices[device].rows:
        if row.allocated(event):
            kind = row.kind
            line = kinds["line"][kind]
            by_line[
                text[lines["file"][line]],
                lines["line"][line],
                text[lines["function"][line]],
                head["no_lines"][lines["no_line"][line]],
                head["phases"][kinds["phase"][kind]],
                head["hows"][kinds["how"][kind]],
            ] += row.bytes
            module = text[kinds["module"][kind]]
            by_module[module, head["no_modules"][kinds["no_module"][kind]]] += row.bytes
            by_category[head["categories"][kinds["category"][kind]]] += row.bytes
    # Blocks that lie over one another may be more than there are addresses.
    return tuple(
        {name: size % 2**64 for name, size in each.items()}
        for each in (by_line, by_module, +by_category)
    )


def answered(recording, device, event):
    peak = recording.peak(device, event)
    keys = "file", "line", "function", "reason", "phase", "how"
    return (
        {tuple(line[key] for key in keys): line["bytes"] for line in peak["by_line"]},
        {(each["module"], each["reason"]): each["bytes"] for each in peak["by_module"]},
        {name: size for name, size in peak["by_category"].items() if size},
    )


def check_totals(recording, page, device, event):
    read = page.devices[device]
    peak = recording.peak(device, event)["peak"]
    active = sum(row.bytes for row in read.rows if row.active(event)) % 2**64
    segments = sum(each.bytes for each in read.segments if alive(each, event))
    assert active == peak["active_bytes"]
    if read.segments:
        assert segments == peak["reserved_bytes"]
    expected = [peak[f"{name}_bytes"] for name in ("allocated", "active", "reserved")]
    if event < 0:
        assert read.chunks[0].before == expected
        return
    part = read.chunks[event // EVENTS]
    assert [column[event - part.first] for column in part.totals] == expected


def alive(segment, event):
    return segment.start <= event and (segment.end is None or event < segment.end)


def check_instants(recording, page, device, events):
    for event in events:
        assert sums(page, device, event) == answered(recording, device, event)
        check_totals(recording, page, device, event)


def frames_of(head, stack):
    text, frames, stacks = head["strings"], head["frames"], head["stacks"]
    found = []
    while stack:
        frame = stacks["frame"][stack]
        found.append(
            (text[frames["name"][frame]], text[frames["file"][frame]],
             frames["line"][frame])
        )  # fmt: skip
        stack = stacks["parent"][stack]
    return found


def check_events(recording, page, device):
    """Each event of the chunks is that of Recording.to_dict(), and its row its block."""
    head, read = page.head, page.devices[device]
    trace = recording.to_dict()["device_traces"][device]
    assert len(trace) == read.events == sum(part.count for part in read.chunks)
    last = 0
    for part in read.chunks:
        rows = [*part.carried, *part.fresh]
        bare = {event: rest for event, *rest in part.bare}
        assert all(
            row.active(part.first - 1) or part.first == 0 for row in part.carried
        )
        for i in range(part.count):
            event = part.first + i
            entry = trace[event]
            assert head["actions"][part.action[i]] == entry["action"]
            last = max(last, entry["time_us"] - int(head["base_us"]), 0)
            assert part.time[i] == last
            found = frames_of(head, part.stack[i])
            assert found == [
                (f["name"], f["filename"], f["line"]) for f in entry.get("frames", ())
            ]
            if part.row[i] == 0:
                addr, size, stream = bare[event]
                stream = int(head["streams"][stream])
            else:
                row = rows[part.row[i] - 1]
                addr, size = row.addr, entry["size"] % 2**64
                stream = int(head["streams"][head["kinds"]["stream"][row.kind]])
                if entry["action"] == "alloc":
                    assert (row.start, row.size) == (event, size % 2**64)
            where = entry["device_free"] if entry["action"] == "oom" else entry["addr"]
            assert (addr, size) == (where % 2**64, entry["size"] % 2**64)
            if entry["action"] == "alloc":
                assert stream == entry["stream"] % 2**64


def check_levels(page, device):
    """Each column is what its most allocated event had, by brute force."""
    read = page.devices[device]
    totals = [[v for part in read.chunks for v in part.totals[k]] for k in range(3)]
    times = [t for part in read.chunks for t in part.time]
    spans = [level["span"] for level in read.head["levels"]]
    assert spans == [256 * 4**k for k in reversed(range(len(spans)))]
    for level, columns in zip(read.head["levels"], read.levels):
        span = level["span"]
        assert len(columns) == level["columns"] == -(-read.events // span)
        for i, column in enumerate(columns):
            first = i * span
            end = min(first + span, read.events)
            peak = max(range(first, end), key=totals[0].__getitem__)
            assert column["peak"] == peak - first
            assert column["time"] == times[first]
            assert [column[k] for k in ("allocated", "active", "reserved")] == [
                total[peak] for total in totals
            ]
            assert column["top"] == max(totals[2][first:end]) - totals[2][peak]
            for scheme in page_reader.SCHEMES:
                groups = [0] * len(read.head["groups"][scheme])
                for row in read.rows:
                    if row.allocated(peak):
                        groups[read.group(scheme, row)] += row.bytes
                assert list(column[scheme]) == [group % 2**64 for group in groups]
                assert sum(groups) % 2**64 == totals[0][peak]


def check_bands(page, device):
    """Each row is in the bands of one level at most, that which its life asks for."""
    read = page.devices[device]
    most = float("inf")
    for level, blobs in zip(read.head["bands"], read.bands):
        least = 8 * level["span"]
        found = [row for blob in blobs for row in blob]
        expected = [row for row in read.rows if least <= life(read, row) < most]
        assert found == expected
        assert level["first"] == [blob[0].start for blob in blobs]
        assert level["last"] == [max(end(read, row) for row in blob) for blob in blobs]
        most = least


def end(read, row):
    return read.events if row.requested is None else row.requested


def life(read, row):
    return end(read, row) - row.start


def check_integrals(page, device):
    read = page.devices[device]
    times = [t for part in read.chunks for t in part.time]
    assert len(read.integrals) == len(read.chunks)
    for part, found in zip(read.chunks, read.integrals):
        stop = min(part.first + part.count, read.events - 1)
        allocs, byte_us = collections.Counter(), collections.Counter()
        for row in read.rows:
            if part.first <= row.start < part.first + part.count:
                allocs[row.kind] += 1
            first, last = max(row.start, part.first), min(end(read, row), stop)
            if first < last:
                byte_us[row.kind] += row.bytes * (times[last] - times[first])
        kinds = {*allocs, *+byte_us}
        assert found == {kind: (allocs[kind], byte_us[kind]) for kind in kinds}


def check_all(recording, events=None, devices=None):
    page = page_reader.Page(recording.page_data())
    for device, read in enumerate(page.devices[:devices]):
        every = range(-1, read.events)
        check_instants(recording, page, device, events or every)
        check_events(recording, page, device)
        check_levels(page, device)
        check_bands(page, device)
        check_integrals(page, device)
    return page


def some_events(recording, amount=12, seed=0):
    count = recording.counts(0)["events"]
    chosen = random.Random(seed).sample(range(count), min(count, amount))
    peak = recording.peak(0)["peak"]["event"] - 1
    return sorted({-1, 0, count - 1, peak, *chosen})


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_a_recorded_trace(name):
    recording = recorded(f"{name}.pickle.gz")
    check_all(recording, some_events(recording))


# ---- anything that a file may say ----

WORDS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free",
         "segment_map", "segment_unmap", "oom", "snapshot")  # fmt: skip
WEIGHTS = (12, 7, 7, 3, 2, 3, 3, 1, 1)
HUGE = 2**64 - 1


def random_trace(random, count):
    """Events that mostly do not fit: at few addresses, of odd sizes."""
    places = [512 * random.randrange(1, 64) for _ in range(12)]
    sizes = [0, 1, 500, 512, 2048, 4096, 1 << 20]
    if random.random() < 0.2:
        places += [HUGE, HUGE - 511, 1 << 63]
        sizes += [HUGE, 1 << 62]
    events = []
    time = 10**15
    for word in random.choices(WORDS, WEIGHTS, k=count):
        time += random.randrange(-2, 9)
        stack = [
            {"name": f"f{k}", "filename": random.choice(["a.py", "b.py"]), "line": k}
            for k in range(random.randrange(3))
        ]
        where = "device_free" if word == "oom" else "addr"
        addr = random.choice(places)
        size = min(random.choice(sizes), HUGE - addr)
        events.append(
            {
                "action": word,
                where: addr,
                "size": size,
                "stream": random.choice([0, 0, 7, HUGE]),
                "time_us": time,
                "frames": stack,
            }
        )
    return events


def random_segments(random):
    segments = []
    for k in range(random.randrange(4)):
        total = 512 * random.randrange(1, 16)
        addr = 16384 * k
        blocks = []
        left = total
        while left:
            size = min(left, 512 * random.randrange(1, 6))
            state = random.choice(
                ["active_allocated", "active_pending_free", "inactive"]
            )
            blocks.append(
                {"address": addr + total - left, "size": size, "requested_size": size,
                 "state": state, "frames": []}
            )  # fmt: skip
            left -= size
        segments.append(
            {"device": 0, "address": addr, "total_size": total, "stream": 0,
             "segment_type": "small", "blocks": blocks,
             "is_expandable": random.random() < 0.5,
             "allocated_size": 0, "active_size": 0}
        )  # fmt: skip
    return segments


def random_recording(seed, count=60):
    chance = random.Random(seed)
    devices = chance.choice([1, 1, 2])
    segments = random_segments(chance)
    for segment in segments:
        segment["device"] = chance.randrange(devices)
    traces = [random_trace(chance, chance.randrange(count)) for _ in range(devices)]
    snapshot = {"segments": segments, "device_traces": traces}
    if chance.random() < 0.3:
        known = {"version": 1, "source": "cpu", "has_segments": False, "devices": [{}]}
        known["devices"] *= devices
        snapshot["memlab"] = known
    return _core.Recording.from_bytes(pickle.dumps(snapshot))


@pytest.mark.parametrize("seed", range(int(os.environ.get("MEMLAB_PAGE_SEEDS", 40))))
def test_what_fits_nothing_is_followed_all_the_same(seed):
    check_all(random_recording(seed))


# ---- what is beside the events of a device ----


def test_chunks_have_the_rows_that_are_there(tmp_path):
    """Two chunks: of blocks that live in one of them, or in both."""
    script = _core.Script()
    script.reset()
    script.emit("segment_alloc", 1 << 40, 64 * MIB)
    script.emit("alloc", 1 << 40, MIB)
    path = tmp_path / "a.mlab"
    with memlab.MemorySnapshot(source="script", file=path):
        for k in range(70):
            addr = (1 << 40) + (1 + k % 30) * MIB
            script.emit("alloc", addr, MIB - k, stream=k % 3, time=k)
            for _ in range(1000):
                script.emit("oom", 5, 7, time=k)
            if k >= 20:
                old = (1 << 40) + (1 + (k - 20) % 30) * MIB
                script.emit("free_requested", old, MIB, time=k)
                script.emit("free_completed", old, MIB, time=k)
    recording = load.read_recording(path)
    page = check_all(recording, some_events(recording, 6), 1)
    device = page.devices[0]
    events = recording.counts(0)["events"]
    assert [part.count for part in device.chunks] == [EVENTS, events - EVENTS]
    # The second begins among the ooms of a turn: 21 of the loop, 1 from before it.
    assert [len(part.carried) for part in device.chunks] == [1, 22]
    actions = [page.head["actions"][a] for part in device.chunks for a in part.action]
    ooms = [i for i, action in enumerate(actions) if action == "oom"]
    assert device.head["ooms"] == ooms[:10_000]


def test_a_coarse_column_is_the_highest_of_four(tmp_path):
    script = _core.Script()
    script.reset()
    script.emit("segment_alloc", 1 << 40, 64 * MIB)
    path = tmp_path / "a.mlab"
    chance = random.Random(5)
    with memlab.MemorySnapshot(source="script", file=path):
        live = set()
        for k in range(1_060_000 // 1000):
            slot = chance.randrange(60)
            block = (1 << 40) + slot * MIB, MIB
            if slot in live:
                script.emit("free_requested", *block, time=k)
                script.emit("free_completed", *block, time=k)
            else:
                script.emit("alloc", *block, time=k)
            live ^= {slot}
            for _ in range(1000):
                script.emit("snapshot", 0, 0, time=k)
    head, blobs = load.read_recording(path).page_data()
    device = page_reader.Device(json.loads(head), blobs, 0, chunks=False)
    coarse, fine = device.levels
    assert [level["span"] for level in device.head["levels"]] == [1024, 256]
    assert len(fine) > 4096
    for i, column in enumerate(coarse):
        parts = fine[4 * i : 4 * i + 4]
        best = max(range(len(parts)), key=lambda k: parts[k]["allocated"])
        top = max(part["top"] + part["reserved"] for part in parts)
        expected = dict(parts[best], time=parts[0]["time"])
        expected["peak"] += 256 * best
        expected["top"] = top - expected["reserved"]
        assert column == expected


def test_ranks_of_a_merged_recording():
    parts = [(recorded(f"{name}.pickle.gz"), name, rank) for rank, name in
             enumerate(["gpt2_oom", "streams_expandable"])]  # fmt: skip
    recording = _core.merge(parts)
    page = page_reader.Page(recording.page_data())
    # What texts call a rank, a page has in its devices' names.
    assert [rank | {"called": "rank"} for rank in page.head["ranks"]] == recording.ranks()
    for device, (part, _, _) in enumerate(parts):
        read = page.devices[device]
        assert read.head["name"] == recording.device_name(device)
        alone = page_reader.Page(part.page_data()).devices[0]
        assert [part.totals for part in read.chunks] == [
            part.totals for part in alone.chunks
        ]
        check_instants(recording, page, device, some_events(part, 3))


def test_an_event_without_a_time_does_not_move_the_beginning():
    def event(action, time):
        return {
            "action": action,
            "addr": 1 << 40,
            "size": 2 * MIB,
            "stream": 0,
            "frames": [],
            "time_us": time,
        }

    start = 1_790_000_000_000_000
    traces = [
        [event("segment_alloc", start + 5), event("alloc", start + 9)],
        [event("segment_alloc", 0)],
    ]
    snapshot = {"segments": [], "device_traces": traces}
    recording = _core.Recording.from_bytes(pickle.dumps(snapshot))
    head = page_reader.Page(recording.page_data()).head
    assert head["base_us"] == str(start + 5)
    assert [(d["first_us"], d["last_us"]) for d in head["devices"]] == [(0, 4), (0, 0)]


def test_notes(tmp_path):
    path = tmp_path / "a.mlab"
    record_file(path)
    recording = load.read_recording(path)
    head = json.loads(recording.page_data()[0])
    notes = head["notes"]
    text = head["strings"]
    shown = [
        (kind, text[name], value)
        for kind, name, value in zip(notes["kind"], notes["name"], notes["value"])
    ]
    told = recording.notes()
    base = int(head["base_us"])
    begins = [n for n in told if n["kind"] == "phase_begin"]
    assert [name for kind, name, _ in shown if kind == "phase"] == [
        f"phase {k % 3}" for k in range(40)
    ]
    assert [value for kind, _, value in shown if kind == "step"] == list(range(40))
    times = [n["time_ns"] // 1000 - base for n in begins]
    ends = [n["time_ns"] // 1000 - base for n in told if n["kind"] == "phase_end"]
    found = [
        (time, end)
        for kind, time, end in zip(notes["kind"], notes["time"], notes["end"])
        if kind == "phase"
    ]
    assert found == list(zip(times, ends))
    assert set(notes["rank"]) == {-1}


# ---- the core as WebAssembly ----

CORE_TEST = Path(__file__).parents[1] / "viewer" / "read_core.js"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def run_core(path, *out):
    """What node said of FILE; the exit status."""
    done = subprocess.run(
        ["node", str(CORE_TEST), str(path), *map(str, out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout, done.returncode


def page_of_core(path, tmp_path):
    """The verdicts, the head and the blobs."""
    out = tmp_path / "page"
    check_core(run_core(path, out), ("", 0))
    verdicts, _, rest = out.read_bytes().partition(b"\0")
    head, _, rest = rest.partition(b"\0")
    blobs = []
    while rest:
        length = int.from_bytes(rest[:4], "little")
        blobs.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    return json.loads(verdicts), head, blobs


def expected_page(path):
    recording = load.read_recording(path)
    return (_page.verdicts_on(recording), *recording.page_data())


def check_core(found, expected):
    """That core.wasm answers as the sources do, if it was built of them: a rule of the core
    can be changed, and tested, where there is no clang-14.  .ci/run holds the two together."""
    if found == expected:
        return
    tools = shutil.which("clang-14"), shutil.which("wasm-ld-14")
    stale = "memlab/viewer/core.wasm answers otherwise than csrc: "
    if None in tools:
        pytest.skip(stale + "run make wasm where clang-14 and lld-14 are installed")
    check = Path(__file__).resolve().parents[2] / "tools" / "wasm.sh"
    if subprocess.run([check, "--check"], capture_output=True, check=False).returncode:
        pytest.fail(stale + "it is stale, run make wasm")
    assert found == expected


@needs_node
def test_a_file_gives_the_page_the_same_data_as_memlab_view(tmp_path):
    packed = DATA / "streams_expandable.pickle.gz"
    plain = tmp_path / "plain.pickle"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    expected = expected_page(plain)
    assert expected[0] == [["Cached: at the peak of reserved memory, 322 MiB of 1.20 GiB are not in use."]]
    check_core(page_of_core(plain, tmp_path), expected)
    check_core(page_of_core(packed, tmp_path), expected)


@needs_node
def test_the_page_gets_the_same_verdict_on_each_device(tmp_path):
    path = DATA / "torch_snapshots" / "two_gpus-torch2.11.0.pickle.gz"
    expected = expected_page(path)
    for lines in expected[0]:
        assert any(line.startswith("1. Shrink cuBLAS's workspaces: ") for line in lines)
    check_core(page_of_core(path, tmp_path), expected)


@needs_node
def test_a_run_out_of_memory_gives_the_page_the_same_verdict(tmp_path):
    path = DATA / "gpt2_oom.pickle.gz"
    expected = expected_page(path)
    assert expected[0][0][0].startswith("Out of memory in a forward pass")
    check_core(page_of_core(path, tmp_path), expected)


@needs_node
def test_a_mlab_file_gives_the_page_the_same_data(tmp_path, monkeypatch):
    # Not below the program's folder: the page knows none to shorten paths by.
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.mlab"
    record_file(path)
    check_core(page_of_core(path, tmp_path), expected_page(path))


@needs_node
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda whole: whole[:90_000], id="cut"),
        pytest.param(lambda whole: b"\x89MLAB\r\n\x1a" + whole[:40], id="mlab"),
        pytest.param(lambda whole: b"cos\nsystem\n(S'x'\ntR.", id="code"),
    ],
)
def test_a_damaged_file_gives_the_cores_error(make, tmp_path):
    path = tmp_path / "file"
    whole = gzip.decompress((DATA / "gpt2_oom.pickle.gz").read_bytes())
    path.write_bytes(make(whole))
    with pytest.raises(memlab.SnapshotError) as caught:
        load.read_recording(path)
    reason = str(caught.value).removeprefix(f"{path}: ").partition(";")[0]
    said, status = run_core(path)
    assert status == 1
    check_core(said[: len(reason)], reason)


@needs_node
def test_what_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(65 << 20)))
    said, status = run_core(path)
    assert status == 1
    assert "unpack to more than 67108864, which no snapshot does" in said


def test_the_committed_core_asks_for_nothing():
    """No import section: WebAssembly without imports can reach its own memory only."""
    core = (Path(memlab.__file__).parent / "viewer" / "core.wasm").read_bytes()
    assert core[:8] == b"\0asm\1\0\0\0"
    sections, at = [], 8
    while at < len(core):
        reader = page_reader.Columns(core[at + 1 :])
        sections.append(core[at])
        length = reader.one()
        at += 1 + reader.at + length
    assert 2 not in sections
