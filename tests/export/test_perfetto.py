"""Traces for Perfetto, read back by a decoder of ours and by Perfetto's own."""

import collections
import pickle

import pytest
from exports import at_peak, real, small, written
from perfetto_trace import trace_of
from segments import BASE, HOSTILE, MIB, block, event, segment

from memlab import _core

REAL = ("gpt2_oom.pickle.gz", "streams_expandable.pickle.gz")


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
