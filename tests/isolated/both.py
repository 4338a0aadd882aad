"""Comparing memlab's snapshot with torch's own of the same process.

Used by programs that record with both.  Each recorder leaves `snapshot` events in the
other's history, so those are left out on both sides; everything else must be equal, keys
and their order included, but for what is said at _same.
"""

import collections

import torch

import memlab

# torch measures its clock anew for each snapshot: one event's time differs a little
# between two of its own snapshots, too, by a slice of the processor's time where it had to
# wait between the two clocks that it compares.
CLOCK_TOLERANCE_US = 20_000
NO_LINE = (1 << 64) - 1


def start(**options):
    """Both recorders on, with the same options."""
    torch.cuda.memory._record_memory_history(**{"stacks": "python", **options})
    memlab.record_memory_history(**options)


def take():
    """(torch's snapshot, memlab's), without the `snapshot` events in them."""
    snapshots = torch.cuda.memory._snapshot(), memlab.snapshot()
    for snapshot in snapshots:
        _leave_out_snapshots(snapshot)
    return snapshots


def _leave_out_snapshots(snapshot):
    snapshot["device_traces"] = [
        [event for event in trace if event["action"] != "snapshot"]
        for trace in snapshot["device_traces"]
    ]


def _keys(dictionary):
    """Keys in order; torch puts a segment's frames last, but first if there are none."""
    keys = list(dictionary)
    if "total_size" in dictionary:
        keys.remove("frames")
    return keys


def _same(ours, theirs, path, strictly=False):
    assert type(ours) is type(theirs), f"{path}: {ours!r} is not like {theirs!r}"
    if isinstance(theirs, dict):
        keys = _keys(ours), _keys(theirs)
        assert keys[0] == keys[1], f"{path}: keys {keys[0]} are not {keys[1]}: {theirs}"
        for key in theirs:
            where = f"{path}.{key}"
            if key == "time_us":
                off = abs(ours[key] - theirs[key])
                assert off <= CLOCK_TOLERANCE_US, f"{where}: {off} us off in {theirs}"
            elif key == "line" and theirs[key] == NO_LINE:
                # An instruction of no line, such as where a signal's handler was
                # called; torch keeps CPython's -1 without its sign.
                assert ours[key] == 0, f"{where}: {ours[key]} is a line"
            elif (
                key == "frames"
                and "total_size" in theirs
                and not theirs[key]
                and not strictly
            ):
                # torch forgets where a segment came from once its first block was
                # split; memlab need not.
                pass
            else:
                _same(ours[key], theirs[key], where, strictly)
    elif isinstance(theirs, (list, tuple)):
        for i, (one, other) in enumerate(zip(ours, theirs)):
            _same(one, other, f"{path}[{i}]", strictly)
        assert len(ours) == len(theirs), f"{path}: {len(ours)} items, {len(theirs)}"
    else:
        assert ours == theirs, f"{path}: {ours!r} is not {theirs!r}"


def without_unknown(ours, theirs):
    """torch's segments, with memlab's frames where torch lost those of the segment."""
    return [
        {**other, "frames": other["frames"] or one["frames"]}
        for one, other in zip(ours["segments"], theirs["segments"])
    ]


def check(strictly=False, allow=None):
    """Asserts that both recorders tell the same; returns torch's snapshot.  STRICTLY:
    memlab tells no more either, as with context "state" or None.  ALLOW(ours, theirs)
    makes alike first what may differ."""
    theirs, ours = take()
    if allow is not None:
        allow(ours, theirs)
    _same(ours, theirs, "snapshot", strictly)
    return theirs


def check_file(path, theirs, strictly=False, allow=None):
    """Asserts that memlab's file at PATH tells the memory and events of torch's snapshot
    THEIRS; STRICTLY and ALLOW as in check.  Its recording began without memory.  What was asked for
    of memory that is free by now is not in it."""
    ours = memlab.load(path)
    _leave_out_snapshots(ours)
    for one, other in zip(ours["segments"], theirs["segments"]):
        for block, their in zip(one["blocks"], other["blocks"]):
            if their["state"] == "inactive":
                block["requested_size"] = their["requested_size"]
    if allow is not None:
        allow(ours, theirs)
    for key in ("segments", "device_traces"):
        _same(ours[key], theirs[key], key, strictly)


def actions(snapshot, device=0):
    """What happened on a device, as a list of action names."""
    return [event["action"] for event in snapshot["device_traces"][device]]


def frames(snapshot):
    """(file, line, function) of each frame of each allocation of the first device."""
    return [
        [(f["filename"], f["line"], f["name"]) for f in event["frames"]]
        for event in snapshot["device_traces"][0]
        if event["action"] == "alloc"
    ]


def by_line(snapshot, file):
    """Bytes that the first device was asked for, by the innermost line of FILE."""
    found = collections.Counter()
    for event in snapshot["device_traces"][0]:
        if event["action"] == "alloc":
            lines = [f["line"] for f in event["frames"] if f["filename"] == file]
            found[lines[0] if lines else None] += event["size"]
    return found


def reconcile(where=""):
    """Asserts that memlab's totals of every device are torch's, to the byte."""
    for device in range(torch.cuda.device_count()):
        theirs = torch.cuda.memory_stats(device)
        ours = memlab.stats(device)
        for name in ("allocated", "active", "requested", "reserved"):
            for key, end in (("current", ""), ("peak", "_peak")):
                expected = theirs[f"{name}_bytes.all.{key}"]
                found = ours[f"{name}_bytes{end}"]
                assert found == expected, (
                    f"{where}: cuda:{device} {name} {key}: memlab {found}, "
                    f"torch {expected}"
                )
        for name in ("dropped_events", "lost_stacks", "inconsistencies"):
            assert ours[name] == 0, f"{where}: cuda:{device} {name} is {ours[name]}"
