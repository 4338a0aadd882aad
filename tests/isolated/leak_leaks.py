"""memlab._core.Leaks: instances, steps, growth and errors."""

import leaks

from memlab import _core

script = _core.Script()
recording = _core.MemorySnapshot()
recording._begin("script", 1000, "alloc", False, True, -1)
watched = _core.Leaks(recording)
script.emit("segment_alloc", 1 << 30, 1 << 21)


def instance():
    _core.Leaks(recording).step()


def growth():
    """Memory of seven steps in a row that stays, then goes."""
    places = [(1 << 30) + 512 * i for i in range(7)]
    told = []
    for place in places:
        script.emit("alloc", place, 512)
        told += watched.step()[0]
    for place in places:
        script.emit("free_requested", place, 512)
        script.emit("free_completed", place, 512)
    watched.step()
    if len(told) != 3:
        raise AssertionError(f"{told} is not what leaks")


def refused():
    try:
        _core.Leaks(_core.MemorySnapshot())
    except RuntimeError:
        return
    raise AssertionError("not refused")


leaks.check(_core.Leaks, instance, (10_000,))
leaks.check(_core.Leaks, growth, (1_000,))
leaks.check(_core.Leaks, refused, (10_000,))
