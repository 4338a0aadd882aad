"""What a report of all tensors costs: memlab's MemReporter and pytorch_memlab's, among the
same objects, in turns."""

import contextlib
import gc
import importlib.util
import io
import time
import warnings

from paired import interleave, spread

MEMLAB, PEER = "memlab", "pytorch_memlab"
TENSORS, OBJECTS = 5_000, 320_000


def crowd(tensors, objects):
    """TENSORS of some kinds on the GPU, and so many other things that the garbage collector
    knows OBJECTS."""
    import torch

    kept = [torch.empty(64 + i % 7, device="cuda") for i in range(tensors)]
    kept.append([[] for _ in range(max(0, objects - len(gc.get_objects())))])
    return kept


def looks(name):
    """{kind: function} of the reporter NAME: what is measured of it."""
    if name == MEMLAB:
        from memlab import MemReporter
    else:
        from pytorch_memlab import MemReporter
    reporter = MemReporter()

    def collect():
        reporter.collect_tensor()

    def report():
        with contextlib.redirect_stdout(io.StringIO()):
            reporter.report()

    return {"collect": collect, "report": report, "release": reporter.get_stats}


def bench_reporter(options):
    """Milliseconds of a look at all tensors, and of a whole report as text."""
    tensors, objects = (500, 100_000) if options.quick else (TENSORS, OBJECTS)
    names = [MEMLAB]
    result = {}
    if importlib.util.find_spec(PEER) is None:
        result["without"] = f"{PEER} is not installed (bench/requirements.txt)"
    else:
        names.append(PEER)
    reporters = {name: looks(name) for name in names}
    kept = crowd(tensors, objects)
    result["tensors"], result["objects"] = len(kept) - 1, len(gc.get_objects())
    for kind in "collect", "report":

        def measure(name, kind=kind):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the peer's, of odd objects
                begin = time.perf_counter()
                reporters[name][kind]()
                took = time.perf_counter() - begin
                reporters[name]["release"]()  # else the peer keeps tensors
            return took * 1e3

        values = interleave(names, options.repeats, measure)
        result[kind] = {name: {"ms": spread(times)} for name, times in values.items()}
        if PEER in values:
            ratios = [p / m for p, m in zip(values[PEER], values[MEMLAB], strict=True)]
            result[kind]["ratio"] = spread(ratios)
    return result
