"""What the tests of line tables share: memory by script, and tables to compare with.

A function under test names its lines by comments; a table is what came of each name, in
MiB, so that a row too many or too few shows as well.
"""

import contextlib
import gc
import linecache
import sys
import threading

import memlab
from memlab import _core

MIB = 1 << 20
script = _core.Script()


class Memory:
    """Blocks of whole MiB on device 0, each with a segment that it fills."""

    def __init__(self):
        script.reset()
        self.next = 1 << 40

    def alloc(self, mib):
        block = (self.next, mib * MIB)
        self.next += block[1]
        script.emit("segment_alloc", *block)
        script.emit("alloc", *block)
        return block

    def free(self, block):
        script.emit("free_requested", *block)
        script.emit("free_completed", *block)
        script.emit("segment_free", *block)

    def spike(self, mib):
        self.free(self.alloc(mib))


@contextlib.contextmanager
def memory():
    """Memory() for a test, at whose end nothing of the profiler is left behind."""
    trace, hook, tools = sys.gettrace(), threading.gettrace(), tool_names()
    with profiler_of():
        Memory().spike(1)
    inconsistencies = _core.stats("script", 0)["inconsistencies"]
    yield Memory()
    gc.collect()
    assert sys.gettrace() is trace
    assert threading.gettrace() is hook
    assert tool_names() == tools
    assert _core.stats("script", 0)["inconsistencies"] == inconsistencies


def tool_names():
    monitoring = getattr(sys, "monitoring", None)
    return monitoring and [monitoring.get_tool(i) for i in range(6)]


def profiler_of(*functions):
    return memlab.LineProfiler(*functions, target_gpu="script")


def name_of(code, line):
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    return [*text.split("  # "), text.strip()][1]


def table(profiler, function, column="active_bytes.all.peak"):
    """{name of line: MiB}; "calls" and "delta" as well as fields of memory_stats()."""
    number = profiler._chosen(function)[0]
    code = profiler._functions[number][1]
    rows = {}
    for line, calls, delta, values in profiler._rows(
        number, () if column in ("calls", "delta") else (column,)
    ):
        value = {"calls": calls, "delta": delta}.get(column)
        value = values[0] if value is None else value
        value = value if column == "calls" else value / MIB
        assert value == int(value)
        assert name_of(code, line) not in rows
        rows[name_of(code, line)] = int(value)
    return rows


def rows_of(profiler, column="active_bytes.all.peak"):
    return profiler._rows(0, (column,))


def run_in_thread(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()
