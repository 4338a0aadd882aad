"""Measuring whether something that is done again and again leaves anything behind."""

import gc
import os
import sys

# Allocators and caches settle within the first round; a leak goes on in the second.
WARM_UP = 2_000
GROWTH_LIMIT = 1 << 20


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def state(kind):
    gc.collect()
    return (
        sys.getrefcount(kind),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        len(gc.get_objects()),
    )


def check(kind, function, counts=(1_000, 100_000)):
    """Asserts that FUNCTION, called over and over, leaves nothing of KIND or else."""
    for _ in range(WARM_UP):
        function()
    for count in counts:
        before, memory = state(kind), resident_bytes()
        for _ in range(count):
            function()
        after, grown = state(kind), resident_bytes() - memory
        names = ("references to the type", "open files", "threads", "objects")
        for name, old, new in zip(names, before, after):
            assert new <= old, f"{kind}: {name} grew from {old} to {new} in {count}"
        assert grown < GROWTH_LIMIT, f"{kind}: {grown} bytes more in {count} calls"
        print(f"{kind.__name__}: {count} calls, {grown} bytes more")
