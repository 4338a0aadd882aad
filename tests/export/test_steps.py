"""The table of steps: each step's peak by category, against the report of that instant."""

import collections

import pytest
from exports import real, small

from memlab import _core

RECORDINGS = ("gpt2_oom.pickle.gz", "streams_expandable.pickle.gz")


def _rows(recording, device):
    columns = recording.columns("steps", device)
    categories = _core.COLUMN_TEXTS["category"]
    return [
        {**row, "category": categories[row["category"]]}
        for row in (dict(zip(columns, values)) for values in zip(*columns.values()))
    ]


def test_steps_by_hand():
    # Two blocks of 512 and 1,024 bytes, and a free of the first; no step is known.
    rows = _rows(small(), 0)
    assert {(row["step"], row["event"], row["allocated"]) for row in rows} == {(0, 1, 1536)}
    assert {row["reserved"] for row in rows} == {2 << 20}
    assert sum(row["bytes"] for row in rows) == 1536
    assert [row["category"] for row in rows] == list(_core.COLUMN_TEXTS["category"])


@pytest.mark.parametrize("name", RECORDINGS)
def test_each_step_is_what_the_report_says_of_it(name):
    recording = real(name)
    for device in range(recording.device_count):
        steps = collections.defaultdict(dict)
        for row in _rows(recording, device):
            steps[row["step"], row["event"], row["allocated"], row["reserved"]][
                row["category"]
            ] = row["bytes"]
        assert steps or not recording.counts(device)["events"]
        for (step, event, allocated, reserved), by_category in steps.items():
            assert recording.find_event(device=device, step=step) == event
            peak = recording.peak(device, event)
            assert peak["peak"]["allocated_bytes"] == allocated
            assert peak["peak"]["reserved_bytes"] == reserved
            told = {name: bytes for name, bytes in by_category.items() if bytes}
            want = {
                name: figures["bytes"] if isinstance(figures, dict) else figures
                for name, figures in peak["by_category"].items()
            }
            assert told == {name: bytes for name, bytes in want.items() if bytes}
