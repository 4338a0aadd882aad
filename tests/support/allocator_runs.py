"""Recordings of small runs whose memory is worked out by hand, and the real ones.

A run is told as steps: ("alloc", name, MiB), ("free", name), ("request", name) and
("complete", name) for a free that waits, ("empty",) and ("oom", MiB, MiB left on the
device).  Requests are of whole multiples of 2 MiB from 10 MiB on, so that with torch's default settings each is a segment of
just its size, taken anew unless the free one of that very size can serve.
"""

import gzip
import json
import pickle
from pathlib import Path

from memlab import _core

MIB = 1 << 20
DATA = Path(__file__).parents[1] / "data"
REAL = sorted(path.stem for path in (DATA / "h200").glob("*.json"))
_ELSEWHERE = {"gpt2.oom": "gpt2_oom", "streams.expandable": "streams_expandable"}


def real(name):
    """The snapshot and the truth of a real run."""
    file = DATA / f"{_ELSEWHERE.get(name, f'h200/{name}')}.pickle.gz"
    truth = json.loads((DATA / "h200" / f"{name}.json").read_text())
    return pickle.loads(gzip.decompress(file.read_bytes())), truth


def recording(snapshot):
    return _core.Recording.from_bytes(pickle.dumps(snapshot, protocol=4))


class _Run:
    def __init__(self):
        self.events = []
        self.segments = {}  # address: MiB
        self.blocks = {}  # name: (address, MiB)
        self.waiting = {}
        self.next = 1 << 40

    def say(self, action, addr, mib, line):
        frames = [{"filename": "train.py", "line": line, "name": "train"}]
        self.events.append(
            {
                "action": action, "addr": addr, "size": mib * MIB, "stream": 0,
                "time_us": 1000 + len(self.events), "frames": frames,
            }
        )

    def free_segments(self):
        held = {addr for addr, _ in (*self.blocks.values(), *self.waiting.values())}
        return [addr for addr in self.segments if addr not in held]

    def alloc(self, line, name, mib):
        cached = [a for a in self.free_segments() if self.segments[a] == mib]
        if not cached:
            cached = [self.next]
            self.next += mib * MIB
            self.segments[cached[0]] = mib
            self.say("segment_alloc", cached[0], mib, line)
        self.say("alloc", cached[0], mib, line)
        self.blocks[name] = (cached[0], mib)

    def request(self, line, name):
        self.waiting[name] = self.blocks.pop(name)
        self.say("free_requested", *self.waiting[name], line)

    def complete(self, line, name):
        self.say("free_completed", *self.waiting.pop(name), line)

    def free(self, line, name):
        self.request(line, name)
        self.complete(line, name)

    def empty(self, line):
        for addr in self.free_segments():
            self.say("segment_free", addr, self.segments.pop(addr), line)

    def oom(self, line, mib, left):
        self.empty(line)
        self.say("oom", left * MIB, mib, line)

    def segment(self, addr, mib):
        live = {a for a, _ in self.blocks.values()}
        waiting = {a for a, _ in self.waiting.values()}
        state = (
            "active_allocated" if addr in live
            else "active_pending_free" if addr in waiting
            else "inactive"
        )
        size = mib * MIB
        block = {"address": addr, "size": size, "requested_size": size, "state": state}
        return {
            "device": 0, "address": addr, "total_size": size, "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
            "allocated_size": size if addr in live else 0,
            "active_size": size if addr in live | waiting else 0,
            "requested_size": size if addr in live | waiting else 0,
            "frames": [], "blocks": [block],
        }


def run(*steps):
    """The snapshot of a run; each step is at the line of its number, from 1 on."""
    made = _Run()
    for line, (what, *arguments) in enumerate(steps, 1):
        getattr(made, what)(line, *arguments)
    return {
        "segments": [made.segment(a, mib) for a, mib in sorted(made.segments.items())],
        "device_traces": [made.events],
    }


# What no segment of one is of use for another: settings decide.
GROWING = [
    ("alloc", "a", 20), ("free", "a"), ("alloc", "b", 40), ("free", "b"),
    ("alloc", "c", 60), ("free", "c"),
]
HELD = [("alloc", "a", 20), ("alloc", "b", 40), ("alloc", "c", 60)]
