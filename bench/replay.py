"""How fast a recording is replayed in the model of the allocator.

    python bench/replay.py [FILE] [EVENTS]

Repeats the run in FILE, a snapshot pickle, until it has EVENTS events: after each time all
memory is given back.  Times are the processor's.  That of a trial alone is the difference
between replays with and without other settings, as the former try seven orders of addresses
more.
"""

import gzip
import pickle
import sys
import time
from pathlib import Path

from memlab import _core

FILE = Path(__file__).resolve().parent.parent / "tests/data/h200/gpt2.default.pickle.gz"
EVENTS = 1_200_000
TRIALS = 7
ROUNDS = 3


def repeated(snapshot, events):
    """SNAPSHOT's first device with its trace so often that it has EVENTS, and nothing at
    the end."""
    trace = snapshot["device_traces"][0]
    live, held = {}, {}
    for event in trace:
        kind, addr = event["action"], event["addr"]
        if kind == "alloc":
            live[addr] = event
        elif kind == "free_completed":
            live.pop(addr, None)
        elif kind in ("segment_alloc", "segment_map"):
            held[addr] = event
        elif kind in ("segment_free", "segment_unmap"):
            held.pop(addr, None)
    back = [
        {**event, "action": action}
        for event in live.values()
        for action in ("free_requested", "free_completed")
    ]
    back += [{**event, "action": "segment_free"} for event in held.values()]
    once = [{**event, "frames": []} for event in trace + back]
    times = -(-events // len(once))
    return {
        "segments": [],
        # A file that says the same things again and again by reference is refused.
        "device_traces": [[dict(event) for _ in range(times) for event in once]],
        "allocator_settings": snapshot["allocator_settings"],
    }


def seconds(recording, **options):
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        answer = recording.replay(0, **options)
        best = min(best, time.process_time() - start)
    return best, answer


def main():
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    events = int(sys.argv[2]) if len(sys.argv) > 2 else EVENTS
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
    data = pickle.dumps(repeated(snapshot, events), 4)
    recording = _core.Recording.from_bytes(data)
    own, answer = seconds(recording)
    other, _ = seconds(recording, conf="")
    trial = (other - own) / TRIALS
    count = answer["events"]
    print(f"{count} events, {answer['mismatched_addresses']} addresses wrong")
    print(f"replay with its check: {own:.2f} s, {count / own / 1e6:.2f} million events/s")
    print(f"a trial: {trial:.3f} s, {count / trial / 1e6:.2f} million events/s")


if __name__ == "__main__":
    main()
