"""A stack deeper than is kept, beside torch's own recorder, which keeps all of it: both ends
are torch's, and the frame between them says how many are not there, in every kind of file."""

import functools
import pickle
import sys

import torch
from torch.cuda import _memory_viz

import memlab

LINE = {"filename", "line", "name"}
INNER = OUTER = 128


def recurse(depth):
    if depth == 0:
        return torch.empty(3 << 20, device="cuda")
    return recurse(depth - 1)


def main():
    snapshot = memlab.MemorySnapshot(file="deep.mlab")
    snapshot.start()
    torch.cuda.memory._record_memory_history(stacks="python")
    memlab.record_memory_history()
    kept = recurse(700)
    theirs = torch.cuda.memory._snapshot()
    memlab.dump_snapshot("deep.pickle")
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)
    snapshot.stop()
    return kept, theirs


def frames(snapshot):
    """Of the one allocation, in the trace and at the block."""
    (event,) = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
    blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
    (block,) = [b for b in blocks if b["state"] == "active_allocated"]
    assert block["frames"] == event["frames"]
    return event["frames"]


sys.setrecursionlimit(2000)
kept, theirs = main()
whole = frames(theirs)
assert len(whole) > 700
assert [f["name"] for f in whole if f["filename"] == __file__][-2:] == ["main", "<module>"]
with open("deep.pickle", "rb") as file:
    ours = pickle.load(file)
marker = {"name": f"<{len(whole) - INNER - OUTER} frames left out>", "filename": "", "line": 0}
expected = [*whole[:INNER], marker, *whole[-OUTER:]]
for snapshot in (ours, memlab.load("deep.pickle"), memlab.load("deep.mlab")):
    found = frames(snapshot)
    assert [{key: f[key] for key in LINE} for f in found] == expected
# What torch makes of a snapshot, it makes of this one; its script for flame graphs is not here.
assert marker["name"] in _memory_viz.memory(ours, format_flamegraph=str)
_memory_viz.trace_plot(ours)
_memory_viz.segment_plot(ours)
del kept

# ---- C++ frames ----


def through_c(depth, kept, _=None):
    """Each call within a sort(), so that C++ frames pile up."""
    if depth == 0:
        kept.append(torch.empty(3 << 20, device="cuda"))
    else:
        [1].sort(key=functools.partial(through_c, depth - 1, kept))
    return 0


def record_all(depth):
    """What both recorders have of an allocation this deep: the C++ frames, with the marker
    if there is one, and all frames in the file."""
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(stacks="all")
    memlab.record_memory_history(stacks="all")
    snapshot = memlab.MemorySnapshot(file="native.mlab", stacks="all")
    snapshot.start()
    kept = []
    through_c(depth, kept)
    theirs, ours = torch.cuda.memory._snapshot(), memlab.snapshot()
    snapshot.stop()
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)
    native = [
        [(f["name"], f["filename"]) for f in frames(one) if not is_python(f)]
        for one in (theirs, ours)
    ]
    del kept
    return (*native, [f["name"] for f in frames(memlab.load("native.mlab"))])


def is_python(frame):
    return frame["filename"] == __file__ or frame["filename"].endswith(".py")


def marked(names):
    return [name for name in names if name.endswith(" frames left out>")]


theirs, ours, filed = record_all(2)
assert len(theirs) < 256, len(theirs)
assert not marked([name for name, _ in ours] + filed)
missing = len(theirs) - len(ours)  # memlab is called deeper in the allocator
theirs, ours, filed = record_all(170)
assert len(theirs) > 600, len(theirs)
(mark,) = marked([name for name, _ in ours])
place = ours.index((mark, ""))
assert ours[place + 1 :] == theirs[-256:]
# The unwinder's frame and memlab's own were among the 256 innermost.
assert 240 <= place <= 255, place
inner = [frame for frame in ours[:place] if frame in theirs]
assert len(inner) >= place - 10
count = int(mark[1:].split()[0])
assert place + count + 256 == len(theirs) - missing, (place, count, len(theirs), missing)
assert marked(filed) == [mark]
