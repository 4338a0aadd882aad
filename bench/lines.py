"""What one traced line costs: memlab's line profiler and pytorch_memlab's, on one loop."""

import contextlib
import importlib.util
import time

from paired import interleave, over, spread
from recorders import OFF

MEMLAB, PEER = "memlab", "pytorch_memlab"
LINES_A_TURN = 6  # of each loop below, its `for` counted


def idle(turns):
    """Lines that touch no memory of the GPU."""
    begin = time.perf_counter()
    for turn in range(turns):
        a = turn
        b = a
        c = b
        d = c
        a = d
    return time.perf_counter() - begin


def allocating(turns, empty, device):
    """Lines of which each allocates a block from the cache, and frees one."""
    begin = time.perf_counter()
    for turn in range(turns):
        a = empty(4096, device=device)
        a = empty(8192, device=device)
        a = empty(4096, device=device)
        a = empty(8192, device=device)
        del a
    return time.perf_counter() - begin


def beside(turns):
    """As idle(), but never profiled."""
    begin = time.perf_counter()
    for turn in range(turns):
        a = turn
        b = a
        c = b
        d = c
        a = d
    return time.perf_counter() - begin


def profiler(name):
    """A context in which lines of idle() and allocating() are profiled as NAME says."""
    if name == OFF:
        return contextlib.nullcontext()
    if name == MEMLAB:
        from memlab import LineProfiler
    else:
        from pytorch_memlab import LineProfiler
    return LineProfiler(idle, allocating)


def works():
    """{name: (title, function of a number of turns)}."""
    import torch

    def allocate(turns):
        return allocating(turns, torch.empty, torch.device("cuda"))

    return {
        "idle": ("lines that touch no GPU memory", idle),
        "allocating": ("lines that allocate and free a cached block", allocate),
        "beside": ("lines of a function that is not profiled", beside),
    }


def bench_lines(options):
    """Figures of one line, by kind of work; nanoseconds."""
    import torch

    torch.empty(1, device="cuda")
    names = [OFF, MEMLAB]
    result = {}
    if importlib.util.find_spec(PEER) is None:
        result["without"] = f"{PEER} is not installed (bench/requirements.txt)"
    else:
        names.append(PEER)
    turns = 50 if options.quick else 500
    for kind, (title, work) in works().items():

        def measure(name, work=work):
            with profiler(name):
                return work(turns) / (turns * LINES_A_TURN) * 1e9

        values = interleave(names, options.repeats, measure)
        base = values[OFF]
        rows = {
            name: {"line_ns": spread(times), "line_ns_over_off": over(times, base)}
            for name, times in values.items()
        }
        result[kind] = {"title": title, "rows": rows}
    return result
