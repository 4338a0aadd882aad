"""Reports of any instant: which one is meant, and its own figures."""

import gzip
import random
from pathlib import Path

import pytest

import memlab
from memlab import _core

DATA = Path(__file__).resolve().parent / "data"
KIB, MIB = 1 << 10, 1 << 20
script = _core.Script()


def recording_of(*actions):
    """A recording of (action, offset in a segment of 64 MiB, bytes), or a function."""
    script.reset()
    with memlab.MemorySnapshot(source="script") as snapshot:
        script.emit("segment_alloc", 1 << 40, 64 * MIB)
        for action in actions:
            if callable(action):
                action()
            else:
                kind, offset, size = action
                script.emit(kind, (1 << 40) + offset, size)
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
