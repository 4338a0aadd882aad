"""Snapshots of segments and blocks, written by hand."""

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
