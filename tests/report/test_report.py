"""Reports of any instant: which one is meant, and its own figures."""

import gzip
import random
from pathlib import Path

import pytest

import memlab
from memlab import _core
from memlab._report import instant as _instant

DATA = Path(__file__).resolve().parents[1] / "data"
KIB, MIB = 1 << 10, 1 << 20
SECOND = 10**9
script = _core.Script()


def recording_of(*actions):
    """A recording of events, one a millisecond: (action, offset in a segment of 64 MiB,
    bytes), or a function to call."""
    script.reset()
    with memlab.MemorySnapshot(source="script") as snapshot:
        script.emit("segment_alloc", 1 << 40, 64 * MIB, time=SECOND)
        for number, action in enumerate(actions, 1):
            if callable(action):
                action()
            else:
                kind, offset, size = action
                time = SECOND + number * 1_000_000
                script.emit(kind, (1 << 40) + offset, size, time=time)
    script.reset()
    return snapshot.data()


def free(offset, size):
    return ("free_requested", offset, size), ("free_completed", offset, size)


# ---- After an event ----


def test_after_each_event_its_own_figures():
    recording = recording_of(
        ("alloc", 0, 3 * MIB), ("alloc", 4 * MIB, 5 * KIB), *free(0, 3 * MIB)
    )
    rounded = 5 * KIB
    allocated = [0, 0, 3 * MIB, 3 * MIB + rounded, rounded, rounded]
    active = [0, 0, 3 * MIB, 3 * MIB + rounded, 3 * MIB + rounded, rounded]
    for event in range(-1, 5):
        answer = recording.peak(0, event)
        assert answer["peak"]["event"] == event + 1
        assert answer["peak"]["allocated_bytes"] == allocated[event + 1]
        assert answer["peak"]["active_bytes"] == active[event + 1]
        assert answer["peak"]["reserved_bytes"] == (64 * MIB if event >= 0 else 0)
        assert answer["whole_peak"]["allocated_bytes"] == 3 * MIB + rounded
    assert recording.peak(0) == recording.peak(0, event=2) == recording.peak(device=0)
    assert recording.peak(0, None) == recording.peak(0)


@pytest.mark.parametrize("event", [-2, 5, 1 << 62, 1 << 70, -(1 << 70)])
def test_an_event_that_is_not_there_is_refused(event):
    recording = recording_of(("alloc", 0, MIB), *free(0, MIB), ("alloc", 0, MIB))
    with pytest.raises(IndexError):
        recording.peak(0, event)
    with pytest.raises(TypeError):
        recording.peak(0, "1")


def test_blocks_by_size_are_in_groups_of_powers_of_four():
    sizes = [512, 1024, 3584, 4096, 5 * MIB, 16 * MIB - 512, 16 * MIB]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    allocs = [("alloc", *pair) for pair in zip(offsets, sizes, strict=True)]
    groups = recording_of(*allocs).peak(0)["by_size"]
    assert [tuple(group.values()) for group in groups] == [
        (16 * MIB, 16 * MIB, 1),
        (4 * MIB, 21 * MIB - 512, 2),
        (4096, 4096, 1),
        (1024, 1024 + 3584, 2),
        (256, 512, 1),
    ]


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_each_table_of_any_instant_adds_up_to_what_is_allocated(name):
    recording = _core.Recording.from_bytes(
        gzip.decompress((DATA / f"{name}.pickle.gz").read_bytes())
    )
    events = recording.counts(0)["events"]
    for event in [-1, events - 1, *random.Random(8).sample(range(events), 12)]:
        answer = recording.peak(0, event)
        allocated = answer["peak"]["allocated_bytes"]
        for table in ("by_line", "by_stack", "by_module", "by_size"):
            assert sum(group["bytes"] for group in answer[table]) == allocated, table
        assert sum(answer["by_category"].values()) == allocated
        assert len({sum(g["blocks"] for g in answer[table])
                    for table in ("by_line", "by_stack", "by_module", "by_size")}) == 1


# ---- Which event is meant ----


def three_steps():
    """Steps 0 to 2 of 5, 7 and 2 MiB, and 512 bytes more in step 3: the clock stands still
    while a step's end is told, so that the event before counts behind it."""
    return recording_of(
        ("alloc", 0, 5 * MIB), *free(0, 5 * MIB), memlab.step,
        ("alloc", 0, 7 * MIB), *free(0, 7 * MIB), memlab.step,
        ("alloc", 0, 2 * MIB), ("alloc", 8 * MIB, 512), memlab.step,
    )


@pytest.mark.parametrize(
    "text, instant",
    [
        ("peak", ("peak", 0)), ("start", ("start", 0)), ("end", ("end", 0)),
        ("12", ("step", 12)), ("step:12", ("step", 12)), ("event:0", ("event", 0)),
        ("1.5s", ("time", 1_500_000)), ("350ms", ("time", 350_000)),
        ("0.0000019s", ("time", 1)), ("1.25ms", ("time", 1250)), ("7us", ("time", 7)),
        ("1.999us", ("time", 1)),
    ],
)
def test_an_instant_in_words(text, instant):
    assert tuple(_instant.parse(text)) == instant


@pytest.mark.parametrize(
    "text",
    ["", "Peak", "-1", "step:", "step:-1", "1.5", "1.s", ".5s", "5m", "1e3s", "event:1.0",
     "time:3", " 12", "12\n", "٣", "9" * 40],
)
def test_what_is_no_instant_is_refused(text):
    with pytest.raises(ValueError, match="is not an instant: peak, start, end, step:12"):
        _instant.parse(text)


@pytest.mark.parametrize(
    "text, event", [("0", 1), ("step:1", 4), ("2", 7), ("start", -1), ("end", 8), ("3", 8),
                    ("event:5", 5), ("0us", 0),
                    ("2.9ms", 2), ("3ms", 3), ("0.004s", 3)]
)
def test_which_event_an_instant_is(text, event):
    recording = three_steps()
    assert _instant.event(recording, 0, _instant.parse(text)) == event


def test_what_a_recording_has_not_is_named():
    recording = three_steps()
    length = 10_000
    for text, said in (
        ("4", "script:0: no event in step 4: there are steps 0 to 3"),
        ("event:9", "no event 9: script:0 has events 0 to 8"),
        (f"{length + 1}us",
         "script:0: the recording ends 0.010000 s after its first event"),
    ):
        with pytest.raises(memlab.Error) as error:
            _instant.event(recording, 0, _instant.parse(text))
        assert str(error.value) == said
    assert _instant.event(recording, 0, _instant.parse(f"{length}us")) == 8
    for wrong in ({}, {"step": 1, "time_us": 1}, {"step": "1"}, {"time_us": 1.5}):
        with pytest.raises(TypeError):
            recording.find_event(0, **wrong)
    with pytest.raises(OverflowError):
        recording.find_event(0, step=-1)
    with pytest.raises(IndexError):
        recording.find_event(99, step=0)
