"""memlab._core.MemorySnapshot: instances, and start and stop with events in between."""

import leaks

from memlab import _core

OPTIONS = {
    "max_entries": 1000,
    "context": "all",
    "native": False,
    "events": True,
    "device": -1,
}

script = _core.Script()
script.emit("segment_alloc", 1 << 30, 1 << 21)
kept = _core.MemorySnapshot()


def cycle(snapshot, end):
    snapshot._begin("script", **OPTIONS)
    script.emit("alloc", 1 << 30, 1000)
    script.emit("free_requested", 1 << 30, 1000)
    script.emit("free_completed", 1 << 30, 1000)
    if end:
        snapshot._end()


def refused():
    for function in (lambda: kept._freeze(0), lambda: kept._begin("disk", **OPTIONS)):
        try:
            function()
        except RuntimeError:
            continue
        raise AssertionError("not refused")


def busy():
    kept._begin("script", **OPTIONS)
    try:
        kept._begin("script", **OPTIONS)
    except RuntimeError:
        pass
    kept._configure("script", **OPTIONS)
    kept._clear()
    kept._end()


leaks.check(_core.MemorySnapshot, _core.MemorySnapshot)
leaks.check(_core.MemorySnapshot, lambda: cycle(kept, True), (1_000, 10_000))
leaks.check(
    _core.MemorySnapshot, lambda: cycle(_core.MemorySnapshot(), False), (1_000,)
)
leaks.check(_core.MemorySnapshot, refused, (10_000,))
leaks.check(_core.MemorySnapshot, busy, (1_000, 10_000))
