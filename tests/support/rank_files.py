"""Recordings of ranks, written by hand."""

import pickle
from pathlib import Path

MIB = 1 << 20
SECOND = 10**9


def frames(*places):
    """A stack of (file, line, function), innermost first."""
    return [{"filename": f, "line": n, "name": name} for f, n, name in places]


def snapshot(rank, *, sizes, ends=(), ahead=0, place=None, **said):
    """What a rank's pickle holds: an allocation of each of SIZES at train.py:N, one every
    10 ms, and steps that end at the times ENDS, by a clock that is AHEAD (ns)."""
    events = [
        {
            "action": "alloc",
            "addr": (1 << 40) + i * MIB,
            "size": size,
            "stream": 0,
            "time_us": (SECOND + i * SECOND // 100 + ahead) // 1000,
            "frames": frames(("train.py", i, "train")),
        }
        for i, size in enumerate(sizes)
    ]
    known = {
        "version": 1,
        "source": "cuda",
        "has_segments": False,
        "devices": [{}],
        "notes": {
            "lost": 0,
            "time": [end + ahead for end in ends],
            "kind": ["step"] * len(ends),
            "name": [""] * len(ends),
            "device": [-1] * len(ends),
            "thread": [0] * len(ends),
            "values": [v for k in range(len(ends)) for v in (k, 0, 0, 0, 0, 0, 0)],
        },
        "ranks": [{"rank": rank, "local_rank": 0, "pid": 7, **said}],
    }
    place = place if place is not None else {"memlab": known}
    return {"segments": [], "device_traces": [events], **place}


def write(folder, **snapshots):
    paths = []
    for name, content in snapshots.items():
        paths.append(str(folder / f"{name}.pickle"))
        Path(paths[-1]).write_bytes(pickle.dumps(content, protocol=4))
    return paths
