"""How fast memlab.Courtesy gives a GPU's memory back and takes it again, against the same
GPU's copies of pinned memory and against pytorch_memlab's Courtesy, in one run.

    bench/courtesy.py                                 # 1, 8 and 40 GB, each three times
    bench/courtesy.py --bytes 64000000 --repeats 1    # a rehearsal, as on the phantom
    bench/courtesy.py --json FILE

pytorch_memlab is measured where it can be imported, or --peer names its file.  GB/s are 10**9 bytes of tensors a
second.  Every repeat measures both, in turn.
"""

import argparse
import gc
import json
import os
import runpy
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

LARGE, SMALL, SMALLS = 64 << 20, 4 << 10, 1000  # bytes, bytes, how many of them
PINNED = 1 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, nargs="+", metavar="N",
                        default=[10**9, 8 * 10**9, 40 * 10**9],
                        help="of tensors (default: 1, 8 and 40 GB)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", metavar="FILE",
                        help="pytorch_memlab's courtesy.py, where it is not installed")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    return parser.parse_args()


def seconds(call):
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(size, repeats=5):
    """GB/s of one cudaMemcpyAsync of pinned memory, both ways; the best of some."""
    import torch

    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    ways = {"to_host": (host, device), "to_device": (device, host)}
    return {
        way: size / 1e9 / min(
            seconds(lambda to=to, of=of: to.copy_(of, non_blocking=True))
            for _ in range(repeats)
        )
        for way, (to, of) in ways.items()
    }


def make_tensors(size):
    """Tensors of SIZE bytes, as a model has them: few large ones and many small."""
    import torch

    total = size - SMALLS * SMALL
    sizes = [LARGE] * (total // LARGE) + [total % LARGE] + [SMALL] * SMALLS
    return [torch.full((n // 4,), 1.5, device="cuda") for n in sizes if n >= 4]


def measure(courtesy, tensors):
    """Seconds of a yield and of a restore, and what was allocated in between."""
    import torch

    given = seconds(courtesy.yield_memory)
    allocated = torch.cuda.memory_allocated()
    assert all(t.device.type == "cpu" for t in tensors)
    taken = seconds(courtesy.restore)
    assert all(t.device.type == "cuda" for t in tensors)
    assert all(t[0].item() == t[-1].item() == tensors[0][0].item() for t in tensors)
    return {"yield_s": given, "restore_s": taken, "allocated_bytes": allocated}


def peers(path):
    import memlab

    found = {"memlab": memlab.Courtesy}
    try:
        if path:
            found["pytorch_memlab"] = runpy.run_path(path)["Courtesy"]
        else:
            from pytorch_memlab import Courtesy

            found["pytorch_memlab"] = Courtesy
    except ImportError as error:
        print(f"memlab alone is measured, without pytorch_memlab: {error}")
    return found


def measure_size(size, repeats, kinds):
    import torch

    tensors = make_tensors(size)
    result = {"bytes": sum(t.untyped_storage().nbytes() for t in tensors)}
    for _ in range(repeats):
        for name, kind in kinds.items():
            result.setdefault(name, []).append(measure(kind(), tensors))
            gc.collect()
    del tensors
    torch.cuda.empty_cache()
    return result


def show(results):
    rates = results["peak_gb_s"]
    print(f"{results['gpu']}, torch {results['torch']}, {os.cpu_count()} cores")
    print(f"pinned copy: {rates['to_host']:.1f} GB/s to the host, "
          f"{rates['to_device']:.1f} GB/s to the device")
    print(f"{'GB':>6} {'':16} {'yield GB/s':>11} {'of peak':>8} {'restore GB/s':>13} "
          f"{'of peak':>8} {'left':>12}")
    for size in results["sizes"]:
        for name in [k for k in size if k != "bytes"]:
            columns = []
            for key, way in ("yield_s", "to_host"), ("restore_s", "to_device"):
                middle = statistics.median(one[key] for one in size[name])
                rate = size["bytes"] / 1e9 / middle
                columns += [rate, rate / rates[way]]
            left = size[name][-1]["allocated_bytes"]
            print(f"{size['bytes'] / 1e9:6.2f} {name:16} {columns[0]:11.1f} "
                  f"{columns[1]:8.0%} {columns[2]:13.1f} {columns[3]:8.0%} {left:12,}")


def main():
    options = arguments()
    from memlab import phantom
    from memlab._native import devices

    if not devices.gpu_present():
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, **phantom.environment(backed=True)})
    import torch

    import memlab

    torch.zeros(1, device="cuda")
    with memlab.Courtesy():
        pass  # the bridge is loaded
    results = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "cores": os.cpu_count(),
        "peak_gb_s": peak(min(PINNED, *options.bytes)),
        "sizes": [],
    }
    torch._C._host_emptyCache()
    kinds = peers(options.peer)
    for size in options.bytes:
        results["sizes"].append(measure_size(size, options.repeats, kinds))
    show(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
