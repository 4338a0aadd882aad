"""memlab._core.Follower: opened, read on, asked, with events that make room, and closed."""

import itertools

import leaks

from memlab import _core

script = _core.Script()
script.emit("segment_alloc", 1 << 30, 1 << 21)
snapshot = _core.MemorySnapshot()
snapshot._begin(
    "script",
    max_entries=8,
    context="all",
    native=False,
    events=True,
    device=-1,
    file="leak.mlab",
    max_file_bytes=1 << 24,
)
count = itertools.count()


def emit():
    at = (1 << 30) + 4096 * (next(count) % 100)
    script.emit("alloc", at, 1000)
    script.emit("free_requested", at, 1000)
    script.emit("free_completed", at, 1000)


script.emit("alloc", (1 << 30) + (1 << 20), 4000)
for _ in range(50):
    emit()


def refused():
    try:
        _core.Follower("leak_follower.py.none")
    except OSError:
        return
    raise AssertionError("a file that is not there was opened")


def looked():
    live = _core.Follower("leak.mlab")
    live.poll()
    live.recording()


def closed():
    live = _core.Follower("leak.mlab", kept=20)
    live.poll(10)
    live.close()


leaks.check(_core.Follower, looked, (300,))
# Caches of malloc for its many sizes fill slowly: they are little only beside many calls.
leaks.check(_core.Follower, closed, (3_000,))
leaks.check(_core.Follower, refused, (2_000,))
live = _core.Follower("leak.mlab", kept=200)


def followed():
    emit()
    live.poll()
    live.recording()


leaks.check(_core.Follower, followed, (1_000,))
live.close()
snapshot._end()
