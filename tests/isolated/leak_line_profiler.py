"""memlab._core.LineProfiler: instances, runs, tables and errors, on the scripted source."""

import leaks

from memlab import _core

script = _core.Script()


def work(addr):
    script.emit("alloc", addr, 1 << 20)
    script.emit("free_requested", addr, 1 << 20)
    return script.emit("free_completed", addr, 1 << 20)


script.emit("segment_alloc", 1 << 30, 20 << 20)
kept = _core.LineProfiler()
kept._add(work.__code__)
kept_empty = _core.LineProfiler()


def switched():
    kept._enable("script", 0)
    work(1 << 30)
    kept._disable()


def dropped_while_enabled():
    profiler = _core.LineProfiler()
    profiler._add(work.__code__)
    profiler._enable("script", 0)
    work(1 << 30)


def read():
    kept._rows(0, ("active_bytes.all.peak", "segment.all.current"))


def cleared():
    profiler = _core.LineProfiler()
    profiler._add(work.__code__)
    profiler._clear(True)


def registered_again():
    kept_empty._add(work.__code__)
    kept_empty._clear(True)


def refused():
    for method, arguments in (
        (kept._add, (work,)),
        (kept._enable, ("nonsense", 0)),
        (kept._rows, (7, ())),
        (kept._rows, (0, ("nonsense",))),
    ):
        try:
            method(*arguments)
        except (TypeError, ValueError, IndexError, RuntimeError):
            continue
        raise AssertionError("not refused")


leaks.check(_core.LineProfiler, _core.LineProfiler)
leaks.check(_core.LineProfiler, switched, (1_000, 5_000))
assert kept._rows(0, ())[0][1] > 6_000
leaks.check(_core.LineProfiler, dropped_while_enabled, (1_000, 5_000))
leaks.check(_core.LineProfiler, read, (10_000,))
leaks.check(_core.LineProfiler, cleared, (10_000,))
leaks.check(_core.LineProfiler, registered_again)
leaks.check(_core.LineProfiler, refused, (5_000,))
