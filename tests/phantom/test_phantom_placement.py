"""Where the phantom's cudaMalloc places memory: where an H200's did.

What that was is in tests/data/h200_cudamalloc.json.
"""

import json
import random

from on_phantom import ROOT, needs_library, output

from memlab import phantom

DATA = ROOT / "tests" / "data"


class Placement:
    """The driver's rule in Python, apart from the C: sizes and addresses in 2 MiB."""

    UNIT = 16  # a region's size is a multiple of 32 MiB

    def __init__(self):
        self.regions = {}  # start: [size, serial, {address: size}]
        self.serial = 0
        self.end = None  # of the highest region that there was

    def holes(self, start):
        size, _, taken = self.regions[start]
        end = start
        for address in sorted(taken):
            if address > end:
                yield address - end, end
            end = address + taken[address]
        if start + size > end:
            yield start + size - end, end

    def predict(self, size):
        """Where `size` goes; None while there is no region to start from."""
        newest = sorted(self.regions, key=lambda start: -self.regions[start][1])
        for start in newest:
            fitting = sorted(hole for hole in self.holes(start) if hole[0] >= size)
            if fitting:
                return fitting[0][1]
        room = -(-size // self.UNIT) * self.UNIT
        if self.end is None:
            return None
        above = self.end
        for below in sorted(self.regions, reverse=True):
            if above - (below + self.regions[below][0]) > room:
                break
            above = below
        return above - room

    def take(self, address, size):
        for start, (room, _, taken) in self.regions.items():
            if start <= address < start + room:
                taken[address] = size
                return
        self.serial += 1
        room = -(-size // self.UNIT) * self.UNIT
        self.regions[address] = [room, self.serial, {address: size}]
        if self.end is None:
            self.end = address + room

    def free(self, address):
        start = max(start for start in self.regions if start <= address)
        del self.regions[start][2][address]
        if not self.regions[start][2]:
            del self.regions[start]


def test_placement_rule_is_that_of_an_h200():
    calls = json.loads((DATA / "h200_cudamalloc.json").read_text())["calls"]
    rule, addresses, wrong = Placement(), [], []
    for number, call in enumerate(calls):
        if len(call) == 1:
            rule.free(addresses[call[0]])
            continue
        address, size = call
        if rule.predict(size) not in (None, address):
            wrong.append(number)
        rule.take(address, size)
        addresses.append(address)
    assert len(addresses) > 1500
    assert wrong == []


@needs_library
def test_library_places_memory_by_the_rule():
    seed = 20
    generator = random.Random(seed)
    script, live = [], 0
    for _ in range(1500):
        if live and generator.random() < 0.45:
            script.append([-1, generator.randrange(live)])
            live -= 1
        else:
            script.append([generator.choice([1, 1, 2, 5, 10, 10, 15, 16, 17, 33, 100]), 0])
            live += 1
    program = f"""
import ctypes, json
library = ctypes.CDLL({str(phantom.LIBRARY)!r})
live = []
for size, which in json.loads({json.dumps(script)!r}):
    if size < 0:
        assert library.cudaFree(ctypes.c_void_p(live.pop(which))) == 0
    else:
        got = ctypes.c_void_p()
        assert library.cudaMalloc(ctypes.byref(got), ctypes.c_size_t(size << 21)) == 0
        live.append(got.value)
        print(got.value >> 21)
"""
    # Python's own allocator would map memory among the regions.
    lines = output(program, env={"PYTHONMALLOC": "malloc"}).split()
    got = iter(int(line) for line in lines)
    rule, live = Placement(), []
    for size, which in script:
        if size < 0:
            rule.free(live.pop(which))
            continue
        address = next(got)
        expected = rule.predict(size)
        assert expected in (None, address), f"seed {seed}, after {len(live)} allocations"
        rule.take(address, size)
        live.append(address)


@needs_library
def test_library_maps_memory_into_the_gaps_that_the_program_leaves():
    """The driver takes its regions from the process's own address space: where the
    program gave memory back, device memory follows."""
    program = f"""
import ctypes
library = ctypes.CDLL({str(phantom.LIBRARY)!r})
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
MIB = 1 << 20
def mapped(bytes):
    # PROT_NONE; MAP_PRIVATE, MAP_ANONYMOUS and MAP_NORESERVE
    return libc.mmap(None, ctypes.c_size_t(bytes), 0, 0x4022, -1, ctypes.c_long(0))
def allocated(bytes):
    got = ctypes.c_void_p()
    assert library.cudaMalloc(ctypes.byref(got), ctypes.c_size_t(bytes)) == 0
    return got.value
# What is wider than a region is filled, down to where one lies below the other.
fillers = [mapped(64 * MIB) for _ in range(24)]
gap = fillers[-4]
assert fillers[-6:] == [gap + n * 64 * MIB for n in (2, 1, 0, -1, -2, -3)]
libc.munmap(ctypes.c_void_p(gap), ctypes.c_size_t(64 * MIB))
regions = [allocated(20 * MIB) for _ in range(3)]
print([gap <= start < gap + 64 * MIB for start in regions])
print([start < fillers[-1] for start in regions])
"""
    lines = output(program, env={"PYTHONMALLOC": "malloc"}).splitlines()
    # Of 64 MiB that begin anywhere, one region of 32 MiB is all that fits.
    assert lines == ["[True, False, False]", "[False, True, True]"]
