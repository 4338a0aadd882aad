"""Files of tests/data/ read as they did when they were written: swap two numbers of any list
that files have, and a test fails.

numbers.mlab.gz has every number that docs/FORMAT.md tells, written by a writer of its own;
what it must read as stands here, in words."""

import gzip
import json
import pickle
import struct
from pathlib import Path

import golden_figures
import mlab_by_hand as by_hand
import pytest

from memlab._files.load import read_recording
from memlab._report import report

DATA = Path(__file__).parents[1] / "data"
FIGURES = json.loads((DATA / "golden" / "figures.json").read_text())
MIB = 1 << 20
HELD = 1 << 40  # a segment from before the recording
MADE = HELD + 64 * MIB
MAPPED = HELD + 128 * MIB

ACTIONS = """alloc free_requested free_completed segment_alloc segment_free segment_map
    segment_unmap snapshot oom other""".split()
CATEGORIES = """parameter buffer gradient optimizer_state activation temporary input
    workspace communication before_recording unknown""".split()
NOTES = """step phase_begin phase_end mark region_begin region_end host gpu oom
    holder optimizer batch loop program""".split()
STOPS = [
    "",
    "the limit of the file's size was reached",
    "the file could not grow",
    "another process cut or removed the file",
]
FLAGS = 1, 2, 4, 8, 16, 32


def numbers():
    """A file with each number once, in order."""
    calm = {"thread": 3, "autograd_thread": 0, "stream": 0, "pool": (0, 0)}
    lane = [
        by_hand.string(1, "train"),
        by_hand.string(2, "train.py"),
        by_hand.string(3, "Linear"),
        by_hand.string(4, "user"),
        by_hand.string(5, "AddmmBackward0"),
        by_hand.code(1, 1, 2, 10),
        by_hand.module(1, 3),
        by_hand.stack(1, 0, 1, 11),
        by_hand.stack(2, 1, 1, 12, 1),
    ]
    where = {2: HELD + 4 * MIB, 3: MADE, 4: MADE, 5: MAPPED, 6: MAPPED}
    for action in range(10):
        frees = action in (1, 2, 4, 6)
        lane.append(by_hand.context(frees, flags=32, metadata=4, **calm))
        if action == 1:
            lane[-1] += by_hand.unused(0)
        if action == 0:
            lane[-1] += by_hand.sparse(1, 4)
        if action == 9:
            lane[-1] += by_hand.sparse(2, 1)
        if action == 3:
            lane[-1] += by_hand.sparse(3, 3)
        lane[-1] += by_hand.event(
            action,
            time=1000,
            addr=where.get(action, HELD + 4 * MIB),
            size=2 * MIB if action in where and action > 2 else MIB,
            of=1 if frees else 2,
            origin=2 if frees else 0,
            block=MIB,
        )
    for i, flag in enumerate(FLAGS):
        lane.append(
            by_hand.context(0, flags=flag, metadata=0, **calm)
            + by_hand.event(
                0, time=1000, addr=HELD + (5 + i) * MIB, size=MIB, of=2, block=MIB,
                sequence=i, node=5 if flag == 1 else 0,
            )
        )  # fmt: skip
    control = [
        by_hand.clock(0, 10**18),
        by_hand.clock(10**6, 10**18 + 10**6),
        by_hand.start(0, 0),
        by_hand.segment(0, HELD, 20 * MIB),
        by_hand.block(0, HELD, MIB, MIB - 24, 1),
        by_hand.block(0, HELD + MIB, MIB, MIB, 2),
        by_hand.started(0),
        by_hand.setting("a", b"b", integer=1),
        by_hand.setting("b", b"i", integer=-7),
        by_hand.setting("c", b"f", real=0.5),
        by_hand.setting("d", b"s", text="words"),
        *(
            by_hand.owner(i, 0, HELD + 5 * MIB, 11, "net.0", CATEGORIES[i])
            for i in range(11)
        ),
        *(
            by_hand.note(i, 1000 * i, range(7), device=0, thread=3, name=f"note {i}")
            for i in range(len(NOTES))
        ),
        by_hand.object_name(1, "net.0"),
        by_hand.last_use(0, HELD + 5 * MIB, 12),
        by_hand.code_line("train.py", "train", "train", 12, 10, 20, "x = net(x)"),
    ]
    return by_hand.file([(16, lane)], control, keys=2 | 4 | 8 | 16, context=3)


def plain(recording, tmp_path):
    recording.write_pickle(tmp_path / "plain.pickle", True)
    return pickle.loads((tmp_path / "plain.pickle").read_bytes())


def test_the_numbers_are_written_as_the_document_says():
    assert gzip.decompress((DATA / "golden" / "numbers.mlab.gz").read_bytes()) == numbers()


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "numbers.mlab"
    path.write_bytes(numbers())
    return read_recording(path)


def test_actions_and_flags(recording, tmp_path):
    read = plain(recording, tmp_path)
    events = read["device_traces"][0]
    actions = [*ACTIONS[:9], "annotate", *["alloc"] * 6]
    assert [each["action"] for each in events] == actions
    assert [each["time_us"] for each in events] == [10**15 + i + 1 for i in range(16)]
    assert events[0]["frames"] == [
        {"name": "train", "filename": "train.py", "line": 12},
        {"name": "train", "filename": "train.py", "line": 11},
    ]
    assert events[0]["user_metadata"] == "user" and events[10]["user_metadata"] == ""
    assert recording.file["unread_records"] == 0 and recording.unread == {}
    known = read["memlab"]["devices"][0]
    assert [ord(each) - 0x40 for each in known["flags"]] == [32] * 10 + list(FLAGS)
    assert known["node"] == [""] * 10 + ["AddmmBackward0"] + [""] * 5
    assert known["unused"] == [0, 1] + [0] * 14
    assert known["internal_metadata"] == ["user"] + [""] * 15
    assert known["compile_context"] == [""] * 3 + ["Linear"] + [""] * 12
    assert known["uses"] == {"addr": [HELD + 5 * MIB], "position": [12]}


def test_categories(recording, tmp_path):
    tags = plain(recording, tmp_path)["memlab"]["devices"][0]["tags"]
    assert tags["category"] == tags["name"] == CATEGORIES
    assert tags["position"] == [11] * 11 and tags["module"] == ["net.0"] * 11


def test_notes(recording):
    notes = recording.notes()
    assert [each["kind"] for each in notes] == NOTES
    assert [each["name"] for each in notes] == [f"note {i}" for i in range(len(NOTES))]
    assert {tuple(each["values"]) for each in notes} == {tuple(range(7))}
    assert notes[9]["time_ns"] == 10**18 + 9000


def test_memory_at_the_start(recording):
    states = {
        block["address"] - HELD: (block["state"], block["requested_size"])
        for block in recording.to_dict()["segments"][0]["blocks"]
    }
    assert states[0] == ("active_allocated", MIB - 24)
    assert states[MIB] == ("active_pending_free", MIB)
    assert states[2 * MIB][0] == "inactive"
    assert recording.to_dict()["allocator_settings"] == {
        "a": True, "b": -7, "c": 0.5, "d": "words",
    }  # fmt: skip


def test_the_process(recording):
    (rank,) = recording.ranks()
    assert (rank["rank"], rank["local_rank"], rank["world_size"]) == (5, 3, 8)
    assert (rank["host"], rank["pid"], rank["state"]) == ("host", 7, "ended")
    assert recording.code_lines() == [
        ("train.py", "train", 12, "x = net(x)", "train", 10, 20, 0)
    ]


def test_columns_that_only_a_newer_memlab_knows(tmp_path):
    """They are skipped and counted; the event has its other values."""
    lane = [
        by_hand.string(1, "user"),
        by_hand.sparse(42, 7, lower=1) + by_hand.event(9, time=1, addr=HELD, size=0, block=0),
        by_hand.sparse(5, 8, lower=1) + by_hand.event(0, time=1, addr=HELD, size=MIB, block=MIB),
    ]
    path = tmp_path / "newer.mlab"
    path.write_bytes(by_hand.file([(2, lane)], [by_hand.clock(0, 0)], keys=0, context=3))
    recording = read_recording(path)
    assert recording.file["unread_records"] == 2 and recording.file["damaged_chunks"] == 0
    assert any("a newer one may" in note for note in report.file_notes(recording.file))
    read = plain(recording, tmp_path)
    assert [e["action"] for e in read["device_traces"][0]] == ["annotate", "alloc"]
    assert read["memlab"]["devices"][0]["internal_metadata"] == ["", "user"]


@pytest.mark.parametrize("number", range(4))
def test_why_a_file_has_no_more(tmp_path, number):
    data = bytearray(numbers())
    data[148:152] = struct.pack("<I", number)
    (tmp_path / "stopped.mlab").write_bytes(data)
    assert read_recording(tmp_path / "stopped.mlab").file["stopped"] == STOPS[number]


@pytest.mark.parametrize("number, state", [(1, "cut off"), (2, "ended")])
def test_how_a_file_ended(tmp_path, number, state):
    data = bytearray(numbers())
    data[144:148] = struct.pack("<I", number)
    (tmp_path / "ended.mlab").write_bytes(data)
    assert read_recording(tmp_path / "ended.mlab").file["state"] == state


@pytest.mark.parametrize(
    "number, lines",
    [(0, [12, 11]), (1, [0, 0]), (2, [0, 0]), (3, [12, 12]), (4, [12, 11])],
)
def test_which_stacks_were_wanted(tmp_path, number, lines):
    """By byte 137: not told, none, of live memory, of allocations, of all events.  As in
    torch, a free that has no stack of its own has its allocation's."""
    data = bytearray(numbers())
    data[137] = number
    data[140:144] = struct.pack("<I", by_hand.crc32c(data[:140]))
    (tmp_path / "context.mlab").write_bytes(data)
    (events,) = read_recording(tmp_path / "context.mlab").to_dict()["device_traces"]
    found = [each.get("frames") for each in events[:2]]
    assert [frames[0]["line"] if frames else 0 for frames in found] == lines


TWO_STACKS = [
    by_hand.string(1, "train"),
    by_hand.string(2, "train.py"),
    by_hand.code(1, 1, 2, 10),
    by_hand.stack(1, 0, 1, 11),
    by_hand.stack(2, 0, 1, 12),
]


def test_a_chunk_goes_on_from_a_state(tmp_path):
    """Its events say that all is as before."""
    lane = [
        *TWO_STACKS,
        by_hand.state(
            time=5000, addr=HELD + MIB, size=MIB, stack=(2, 1), block=MIB,
            flags=(32, 32 | 1), thread=3, action=9,
        ),
        by_hand.same_event(0, time=1000),
        by_hand.same_event(1, time=500),
    ]  # fmt: skip
    control = [
        by_hand.clock(0, 10**18),
        by_hand.clock(10**6, 10**18 + 10**6),
        by_hand.start(0, 0),
        by_hand.segment(0, HELD, 20 * MIB),
        by_hand.started(0),
    ]
    data = by_hand.file([(2, lane)], control, keys=2, context=3, required=2)
    path = tmp_path / "state.mlab"
    path.write_bytes(data)
    recording = read_recording(path)
    assert recording.file["damaged_chunks"] == recording.file["unread_records"] == 0
    read = plain(recording, tmp_path)
    alloc, free = read["device_traces"][0]
    assert (alloc["action"], free["action"]) == ("alloc", "free_requested")
    assert [e["addr"] - HELD for e in (alloc, free)] == [MIB, MIB]
    assert [e["size"] for e in (alloc, free)] == [MIB, MIB]
    assert [e["time_us"] for e in (alloc, free)] == [10**15 + 6, 10**15 + 6]
    assert read["memlab"]["devices"][0]["time"] == [0, 500]
    assert [e["frames"][0]["line"] for e in (alloc, free)] == [12, 11]
    flags = read["memlab"]["devices"][0]["flags"]
    assert [ord(each) - 0x40 & 33 for each in flags] == [32, 33]


def kept():
    """A file that dropped its first ten events, and its first two steps, at start 2."""
    memory = [
        by_hand.clock(0, 10**18),
        by_hand.clock(10**6, 10**18 + 10**6),
        by_hand.trim(9000, 2, 0),
        by_hand.trim_lane(0, index=1, before=10, dropped=10, peak=(7 * MIB, 8 * MIB, 7, 9 * MIB)),
        by_hand.trim_lane(64, index=1, before=6),
        by_hand.start(0, 10),
        by_hand.with_stack(by_hand.segment(0, HELD, 20 * MIB), 0),
        by_hand.with_stack(by_hand.block(0, HELD, MIB, MIB - 24, 1), 2),
        by_hand.started(0),
        by_hand.owner(0, 0, HELD, 10, "net.0", "weight"),
    ]
    other = [by_hand.string(1, "never"), by_hand.code(1, 1, 1, 10), by_hand.stack(2, 0, 1, 13)]
    lane = [
        by_hand.context(
            0, flags=32, thread=3, autograd_thread=0, stream=0, pool=(0, 0), metadata=0
        )
        + by_hand.event(0, time=10_000, addr=HELD + MIB, size=MIB, of=1, block=MIB),
    ]
    return b"".join(
        [
            by_hand.head([11], control=7, keys=2, context=3, required=4, start=2),
            by_hand.chunk(2, 0, other, before=1),
            by_hand.chunk(3, 0, [by_hand.trim(1, 7, 0)], before=1),
            by_hand.chunk(1, 0, [by_hand.note(0, 5, [1])] * 6),
            by_hand.chunk(2, 0, TWO_STACKS, before=2),
            by_hand.chunk(3, 0, memory, before=2),
            by_hand.chunk(0, 0, lane, index=1, before=10),
            by_hand.chunk(1, 0, [by_hand.note(0, 11_000, [2])], index=1, before=6),
        ]
    )


def test_the_last_part_of_a_run(tmp_path):
    """Of the chunks of starts, kinds 2 and 3, those count whose number is in the header."""
    path = tmp_path / "kept.mlab"
    path.write_bytes(kept())
    recording = read_recording(path)
    about = recording.file
    assert about["gone_events"] == 10 and about["gone_steps"] == 2
    assert about["damaged_chunks"] == about["unread_records"] == about["lost_records"] == 0
    assert not about["gaps"] and not about["unknown_starts"]
    assert about["gone_until_us"] == 10**15 + 9
    read = plain(recording, tmp_path)
    (event,) = read["device_traces"][0]
    assert (event["action"], event["addr"]) == ("alloc", HELD + MIB)
    assert event["frames"] == [{"name": "train", "filename": "train.py", "line": 11}]
    first = read["segments"][0]["blocks"][0]
    assert (first["address"], first["requested_size"]) == (HELD, MIB - 24)
    assert first["frames"] == [{"name": "train", "filename": "train.py", "line": 12}]
    known = read["memlab"]["devices"][0]
    assert known["peak"]["allocated"] == 7 * MIB and known["peak"]["reserved"] == 20 * MIB
    assert known["tags"]["name"] == ["weight"]
    assert [each["values"][0] for each in recording.notes()] == [2]


# ---- Recordings of programs ----


def files():
    return sorted(
        path.relative_to(DATA).as_posix()
        for path in DATA.rglob("*.gz")
        if path.name.endswith((".mlab.gz", ".pickle.gz"))
    )


def test_every_file_has_figures():
    assert list(FIGURES) == files()


@pytest.mark.parametrize("name", FIGURES)
def test_a_file_reads_as_it_did(tmp_path, name):
    path = tmp_path / Path(name).name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    assert golden_figures.of(read_recording(path, quiet=True), tmp_path) == FIGURES[name]
