"""Peaks of real traces, whole and cut, against an independent model of the allocator."""

import gzip
import pickle
from pathlib import Path

import model_ledger
import pytest

from memlab import _core

DATA = Path(__file__).parents[1] / "data"
NAMES = ["gpt2_oom", "streams_expandable"]
KEYS = ["allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"]


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    path = DATA / f"{request.param}.pickle.gz"
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
    totals, model = model_ledger.replay(snapshot)
    return snapshot, totals, model


def answer(snapshot):
    return _core.Recording.from_bytes(pickle.dumps(snapshot, protocol=4)).peak(0)


def test_the_model_ends_where_the_snapshot_does(case):
    snapshot, _, model = case
    states = {
        "inactive": "free",
        "active_allocated": "allocated",
        "active_pending_free": "pending",
    }
    real = {
        (block["address"], block["size"], states[block["state"]])
        for segment in snapshot["segments"]
        for block in segment["blocks"]
    }
    assert {(b.address, b.size, b.state) for b in model.blocks.values()} == real


def test_the_peak_is_the_models(case):
    snapshot, totals, _ = case
    got = answer(snapshot)
    most = max(range(len(totals)), key=lambda i: totals[i]["allocated_bytes"])
    assert got["mismatches"] == 0
    assert got["uncertain_bytes"] == 0
    assert got["peak"]["event"] == most
    assert {key: got["peak"][key] for key in KEYS} == totals[most]
    for key in KEYS:
        assert got["whole_peak"][key] == max(total[key] for total in totals)
    assert sum(line["bytes"] for line in got["by_line"]) == totals[most][KEYS[0]]


@pytest.mark.parametrize("tenths", range(1, 10))
def test_a_window_has_the_past_that_it_had(case, tenths):
    """The oldest events are gone, as after a ring was overwritten: what they left in
    place is worked out from the end."""
    snapshot, totals, _ = case
    events = snapshot["device_traces"][0]
    first = len(events) * tenths // 10
    cut = dict(snapshot, device_traces=[events[first:]])
    got = answer(cut)
    seen = totals[first:]
    assert got["mismatches"] == 0
    assert got["whole_peak"]["requested_bytes"] == max(
        t["requested_bytes"] for t in seen
    )
    assert got["whole_peak"]["reserved_bytes"] == max(t["reserved_bytes"] for t in seen)
    most = max(t["allocated_bytes"] for t in seen)
    short = most - got["whole_peak"]["allocated_bytes"]
    assert 0 <= short <= got["uncertain_bytes"]
    if snapshot["allocator_settings"]["expandable_segments"]:
        assert got["uncertain_bytes"] == 0
