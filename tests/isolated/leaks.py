"""Measuring whether something that is done again and again leaves anything behind."""

import ctypes
import gc
import os
import sys

# Allocators and caches settle within the first round; a leak goes on in the second.
WARM_UP = 200
# The least that malloc gives takes 32 bytes.  What it keeps at hand for a thread counts as
# given out, and a chunk of that may come by chance.
MALLOC_LIMIT = 16
MALLOC_CHANCE = 4096
# The least that is mapped is a page: seen where a round has 300 calls.
GROWTH_LIMIT = 1 << 20
# What is left once a call is left in each round; what memory's own caches and other threads
# take comes at times, above all on a busy machine.
ROUNDS = 3


class Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                     "fsmblks", "uordblks", "fordblks", "keepcost")
    ]  # fmt: skip


try:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
except AttributeError:
    print("malloc is not asked what is in use: the C library has no mallinfo2")
    mallinfo = Mallinfo


def malloc_bytes():
    """What malloc has given out and was not freed, with what a thread keeps at hand."""
    info = mallinfo()
    return info.uordblks + info.hblkhd


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


def left(function, count):
    """Bytes of malloc's, blocks of Python's and resident bytes that COUNT calls leave."""
    resident, malloced = resident_bytes(), malloc_bytes()
    blocks = sys.getallocatedblocks()
    for _ in range(count):
        function()
    gc.collect()
    return (
        malloc_bytes() - malloced,
        sys.getallocatedblocks() - blocks,
        resident_bytes() - resident,
    )


def check(kind, function, counts=(1_000, 100_000)):
    """Asserts that FUNCTION, called over and over, leaves nothing of KIND or else."""
    for _ in range(WARM_UP):
        function()
    # The list of all objects is large where torch is: malloc puts it elsewhere once it has
    # been freed for the first time.
    state(kind), state(kind)
    for count in counts:
        before = state(kind)
        limit = max(count * MALLOC_LIMIT, MALLOC_CHANCE)
        for _ in range(ROUNDS):
            malloced, blocks, grown = left(function, count)
            if malloced < limit and blocks < count / 2 and grown < GROWTH_LIMIT:
                break
        after = state(kind)
        names = ("references to the type", "open files", "threads", "objects")
        for name, old, new in zip(names, before, after):
            assert new <= old, f"{kind}: {name} grew from {old} to {new} in {count}"
        assert blocks < count / 2, f"{kind}: {blocks} blocks of Python's more in {count}"
        assert malloced < limit, f"{kind}: {malloced} bytes of malloc's"
        assert grown < GROWTH_LIMIT, f"{kind}: {grown} bytes more in {count} calls"
        print(f"{kind.__name__}: {count} calls, {grown} bytes more, {malloced} of malloc's")
