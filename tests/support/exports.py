"""Recordings for the tests of exports, and the peak's figures of them."""

import collections
import gzip
import os
import pickle
import stat
from pathlib import Path

from modes import NEW
from segments import BASE, MAIN, MIB, STEP, block, event, frame, segment

from memlab import _core
from memlab._export import export

DATA = Path(__file__).parents[1] / "data"
US = 1_000_000


def real(name):
    return _core.Recording.from_bytes(gzip.decompress((DATA / name).read_bytes()))


def notes(*rows):
    """The table of notes; a row is (time in ns, kind, name, thread, number)."""
    return {
        "lost": 0,
        "time": [row[0] for row in rows],
        "kind": [row[1] for row in rows],
        "name": [row[2] for row in rows],
        "device": [-1] * len(rows),
        "thread": [row[3] for row in rows],
        "values": [v for row in rows for v in (row[4], 0, 0, 0, 0, 0, 0)],
    }


def small(name="grow", told=(), **more):
    """Two devices: on the first 512 bytes of NAME from event 0 to 2 and 1024 of MAIN from
    event 1 on, the peak; on the second one block without a stack, and out of memory."""
    stack = [frame(name, name, 9), MAIN]
    first = [
        event("alloc", BASE, 500, stack, time_us=US),
        event("alloc", BASE + 512, 1000, [STEP, MAIN], time_us=US + 10),
        event("free_requested", BASE, 500, time_us=US + 20),
        event("free_completed", BASE, 500, time_us=US + 30),
    ]
    second = [
        event("alloc", BASE, 512, time_us=US + 5),
        event("oom", 77, 4 << 40, stack, time_us=US + 6),
    ]
    blocks = [
        block(BASE, 512, 0, "inactive"),
        block(BASE + 512, 1024, 1000, frames=[STEP, MAIN]),
        block(BASE + 1536, 2 * MIB - 1536, 0, "inactive"),
    ]
    other = [block(BASE, 512, 512), block(BASE + 512, 2 * MIB - 512, 0, "inactive")]
    known = {"version": 1, "source": "cuda", "devices": [{}, {}], "notes": notes(*told)}
    data = {
        "segments": [segment(BASE, blocks), segment(BASE, other, stream=7, device=1)],
        "device_traces": [first, second],
        "memlab": known,
        **more,
    }
    return _core.Recording.from_bytes(pickle.dumps(data, 4))


def written(recording, tmp_path, name, **options):
    path = tmp_path / name
    export.convert(recording, str(path), **options)
    assert stat.S_IMODE(path.stat().st_mode) == NEW
    assert os.listdir(tmp_path) == [name]
    return path


def by_line(recording):
    lines = collections.Counter()
    for row in recording.peak(0)["by_line"]:
        lines[row["file"], row["line"], row["function"]] += row["bytes"]
    return lines


def at_peak(recording):
    """The event right before the peak."""
    return recording.peak(0)["peak"]["event"] - 1
