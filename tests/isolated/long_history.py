"""Long random histories on the scripted source, against a model in Python.

    long_history.py EVENTS SEED

First blocks that come and go in many segments: totals and their peaks are the model's all
along.  Then events of any content: what is read back is what was emitted, field by field,
the newest as many as each recording keeps.  Prints the seed.
"""

import collections
import random
import sys

import memlab
from memlab import _core
from memlab._native import sources

MIB = 1 << 20
SEGMENT = 20 * MIB
BASE = 0x7F0000000000
SIZES = [0, 1, 511, 512, 513, (1 << 31) - 1, (1 << 31) + 1, 1 << 32, 1 << 40]
SIZES += [(1 << 53) - 1, (1 << 53) + 1, (1 << 63) - 1]
# The schema's numbers are signed, and a process has no address from 2**63 on.
ADDRESSES = [0, 1, BASE, BASE + 512, (1 << 63) - 1]
POOL_ID = 0x04  # the key of the schema that shows an event's pool


def block_bytes(size):
    """What an allocation of SIZE takes of a segment of 20 MiB that is otherwise free."""
    rounded = max(512, -(-size // 512) * 512)
    rest = SEGMENT - rounded
    split = rest >= 512 if rounded <= MIB else rest > MIB
    return rounded if split else SEGMENT


class Model:
    """Totals of blocks, one in each of SEGMENTS segments."""

    def __init__(self, script, order, segments):
        self.script, self.order = script, order
        self.segments = segments
        self.blocks = {}  # slot: (size, allocated)
        self.emitted = collections.deque(maxlen=60_000)
        self.allocated = self.active = self.requested = 0
        self.peak = {"allocated": 0, "active": 0, "requested": 0}
        self.count = 0

    def emit(self, action, slot, size):
        address = BASE + slot * 2 * SEGMENT
        self.script.emit(action, address, size)
        self.emitted.append((action, address, size))
        self.count += 1

    def step(self):
        slot = self.order.randrange(self.segments)
        if slot not in self.blocks:
            size = self.order.randint(1, self.order.choice((600, 100_000, SEGMENT)))
            self.emit("alloc", slot, size)
            self.blocks[slot] = size, True
            self.allocated += block_bytes(size)
            self.active += block_bytes(size)
            self.requested += size
            for name in self.peak:
                self.peak[name] = max(self.peak[name], getattr(self, name))
            return
        size, allocated = self.blocks[slot]
        if allocated:
            self.emit("free_requested", slot, size)
            self.blocks[slot] = size, False
            self.allocated -= block_bytes(size)
        else:
            self.emit("free_completed", slot, size)
            del self.blocks[slot]
            self.active -= block_bytes(size)
            self.requested -= size

    def check_totals(self, where):
        ours = memlab.stats("script:0")
        for name in self.peak:
            assert ours[f"{name}_bytes"] == getattr(self, name), (where, name, ours)
            assert ours[f"{name}_bytes_peak"] == self.peak[name], (where, name, ours)
        assert ours["reserved_bytes"] == self.segments * SEGMENT, (where, ours)
        for name in ("dropped_events", "lost_stacks", "inconsistencies"):
            assert ours[name] == 0, (where, name, ours)


def newest(snapshot, keys, size, emitted):
    """KEYS of the events that SNAPSHOT of SIZE entries holds, our walks' own aside."""
    recording = snapshot._freeze(sources.dialect_keys() | POOL_ID)
    trace = recording.to_dict()["device_traces"][0]
    assert len(trace) == size or len(trace) >= emitted, (len(trace), size, emitted)
    assert recording.counts(0)["dropped_events"] == 0, recording.counts(0)
    return [tuple(e[key] for key in keys) for e in trace if e["action"] != "snapshot"]


def check_same(got, emitted, where):
    expected = list(emitted)[len(emitted) - len(got) :]
    for i, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert one == other, f"{where}: {one} at {i - len(got)} is not {other}"


def check_blocks(script, events, seed):
    order = random.Random(seed)
    script.reset()
    model = Model(script, order, 300)
    for slot in range(model.segments):
        script.emit("segment_alloc", BASE + slot * 2 * SEGMENT, SEGMENT)
    recorders = {
        size: memlab.MemorySnapshot(source="script", max_entries=size).start()
        for size in (1, 1000, 50_000)
    }
    every = max(1, events // 20)
    while model.count < events:
        model.step()
        if model.count % 5000 == 0:
            model.check_totals(f"event {model.count}")
        if model.count % every == 0:
            for size, snapshot in recorders.items():
                keys = ("action", "addr", "size")
                got = newest(snapshot, keys, size, model.count)
                check_same(got, model.emitted, f"event {model.count} of {size}")
    model.check_totals("the end")
    for snapshot in recorders.values():
        snapshot.stop()


def check_content(script, events, seed):
    """Nothing that an event says is lost or changed, sensible or not."""
    order = random.Random(seed + 1)
    script.reset()
    kept = 20_000
    emitted = collections.deque(maxlen=kept)
    texts = ["", "phase", "größer ≠ 大", "x" * 300]
    now = 10**9
    with memlab.MemorySnapshot(source="script", max_entries=kept) as snapshot:
        for i in range(1, events + 1):
            action = order.choice(("alloc", "free_requested", "free_completed"))
            address = order.choice(ADDRESSES + [order.getrandbits(63)] * 8)
            size = order.choice(SIZES + [order.getrandbits(order.randint(1, 40))] * 20)
            stream = order.choice((0, 0, 0, 7, order.getrandbits(63)))
            pool = order.choice(((0, 0), (0, 0), (1, 0), (0, order.getrandbits(32))))
            text = order.choice(texts) if order.random() < 0.1 else ""
            # Clocks step back now and then.
            now += order.choice((1, 40, 1000, 10**6, 10**10, -5000))
            script.emit(action, address, size, stream=stream, pool=pool, metadata=text,
                        time=now)
            emitted.append((action, address, size, stream, pool, text))
            if i % max(1, events // 4) == 0:
                keys = ("action", "addr", "size", "stream", "pool_id", "user_metadata")
                got = newest(snapshot, keys, kept, i)
                check_same(got, emitted, f"event {i}")


def main(events, seed):
    print("seed", seed)
    script = _core.Script()
    check_blocks(script, events, seed)
    check_content(script, events // 4, seed)
    print(f"{events} events, totals, peaks and content are the model's")


main(int(sys.argv[1]), int(sys.argv[2]))
