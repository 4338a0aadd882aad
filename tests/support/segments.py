"""Snapshots of segments, blocks and events, written by hand."""

import pickle

from memlab import _core

BASE = 0x7F0000000000
MIB = 1 << 20


def frame(name, filename="/u/train.py", line=1):
    return {"name": name, "filename": filename, "line": line}


def block(address, size, requested, state="active_allocated", frames=()):
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": list(frames),
    }


def segment(address, blocks, stream=0, device=0):
    used = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(
            b["size"] for b in used if b["state"] == "active_allocated"
        ),
        "active_size": sum(b["size"] for b in used),
        "requested_size": sum(b["requested_size"] for b in used),
        "stream": stream,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def snapshot(segments, traces=((),)):
    return {
        "segments": segments,
        "device_traces": [list(trace) for trace in traces],
        "allocator_settings": {},
        "external_annotations": [],
    }


def recording(data):
    return _core.Recording.from_bytes(pickle.dumps(data))


def event(action, addr, size, frames=(), **more):
    entry = {"action": action, "size": size, "stream": 0, "time_us": 1, **more}
    entry["device_free" if action == "oom" else "addr"] = addr
    return {**entry, "frames": list(frames)}


# What a name of a stranger may hold.
HOSTILE = [
    '</script><script>alert(1)</script>"\'&',
    "]]></style><svg onload=alert(1)>",
    "a;b c\n\r\t\0\x1b[31m\u202e\ud800",
    "{{7*7}}${x}@DATA@",
]

MAIN = frame("main", "/u/train.py", 3)
STEP = frame("step", "/u/lib/model.py", 7)


def two_segments():
    """Two stacks and one block without; a block that waits for its stream."""
    return [
        segment(
            BASE,
            [
                block(BASE, 1024, 1000, frames=[STEP, MAIN]),
                block(BASE + 1024, 512, 512, frames=[MAIN]),
                block(BASE + 1536, 512, 300, "active_pending_free", [STEP, MAIN]),
                block(BASE + 2048, 2 * MIB - 2048, 0, "inactive"),
            ],
        ),
        segment(
            BASE + 4 * MIB,
            [
                block(BASE + 4 * MIB, MIB, MIB - 100),
                block(BASE + 5 * MIB, MIB, 0, "inactive"),
            ],
            stream=7,
        ),
    ]


def changed():
    """In the first segment STEP's two blocks became one of 3072 bytes, MAIN's is gone, and
    a new function has 1024; the second segment is another one."""
    first, second = two_segments()
    new = frame("grow", "/u/lib/model.py", 9)
    # Another file, which has the same last part.
    first["blocks"] = [
        block(BASE, 3072, 3000, frames=[STEP, MAIN]),
        block(BASE + 3072, 1024, 1024, frames=[new, MAIN]),
        block(BASE + 4096, 2 * MIB - 4096, 0, "inactive"),
    ]
    for b in second["blocks"]:
        b["address"] += MIB
    second["address"] += MIB
    return snapshot([first, second])
