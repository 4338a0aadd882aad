"""Measures memlab against torch's own recorder, in one run, on the same work.

    make bench                      a table, and build/bench.json
    python bench/run.py --json F    figures with every repeat's value, as F

Runs on a GPU where there is one, else on the phantom device (where kernels are no-ops, so
that a step is all overhead and shares of it are larger than on a GPU).  Repeats of the
recorders are interleaved, so that a drift of the machine's speed meets all alike; what is
quoted is the median, with the lowest and highest.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
DEPTH = 22  # Python frames on the stack of each measured allocation


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too",
                        default=os.path.join(ROOT, "build", "bench.json"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a small rehearsal")
    options = parser.parse_args()
    from memlab import _sources, phantom

    if not _sources.gpu_present():
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, **phantom.environment(), "MEMLAB_PHANTOM_QUIET": "1"})
    results = {"machine": machine()}
    results["event"] = bench_event(options)
    results["step"] = bench_step(options)
    results["snapshot"] = bench_snapshot(options)
    show(results)
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w") as file:
        json.dump(results, file, indent=1)
    print(f"\nFigures: {options.json}")


def machine():
    import torch

    from memlab import _sources

    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT,
                              capture_output=True, text=True).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(),
        "phantom": _sources.under_phantom(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": processor(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "revision": revision or "unknown",
    }


def processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


# ---- Recorders: each is a context in which the same work is measured ----


@contextlib.contextmanager
def recorder(name, max_entries=1_000_000):
    import torch

    import memlab

    if name == "off":
        yield None
    elif name.startswith("torch"):
        stacks = "all" if name == "torch all" else "python"
        context = None if name == "torch no stacks" else "all"
        torch.cuda.memory._record_memory_history(
            "all", context=context, stacks=stacks, max_entries=max_entries
        )
        try:
            yield None
        finally:
            torch.cuda.memory._record_memory_history(None)
    else:
        snapshot = memlab.MemorySnapshot(
            max_entries=max_entries,
            context=None if name == "memlab no stacks" else "all",
            stacks="all" if name == "memlab all" else "python",
        )
        with snapshot:
            yield snapshot


def interleaved(names, repeats, measure):
    """{name: [value of each repeat]}"""
    values = {name: [] for name in names}
    for repeat in range(repeats + 1):
        for name in names:
            with recorder(name):
                value = measure()
            if repeat > 0:  # the first warms up
                values[name].append(value)
    return values


def summary(values, scale=1.0):
    return {
        name: {
            "median": statistics.median(v) * scale,
            "lowest": min(v) * scale,
            "highest": max(v) * scale,
            "values": [x * scale for x in v],
        }
        for name, v in values.items()
    }


# ---- One event: an allocation and its free from the cache, three events ----


def deep(depth, work):
    return work() if depth == 0 else deep(depth - 1, work)


def bench_event(options):
    import torch

    pairs = 2_000 if options.quick else 50_000
    size = 4096

    def loop():
        empty, device = torch.empty, torch.device("cuda")
        begin = time.perf_counter()
        for _ in range(pairs):
            empty(size, device=device)
        return (time.perf_counter() - begin) / pairs

    torch.empty(size, device="cuda")
    # Without a tracker first: attaching is for the life of the process.
    bare = [deep(DEPTH - 4, loop) for _ in range(options.repeats + 1)][1:]
    with recorder("memlab"):
        pass
    names = ["off", "memlab no stacks", "memlab", "torch no stacks", "torch python",
             "torch all"]
    values = interleaved(names, options.repeats, lambda: deep(DEPTH - 4, loop))
    values = {"no tracker attached": bare, **values}
    result = summary(values, 1e9)
    base = result["off"]["median"]
    for name, row in result.items():
        row["ns_per_event_over_off"] = (row["median"] - base) / 3
    return result


# ---- One training step of the example model ----


def bench_step(options):
    import torch

    sys.path.insert(0, os.path.join(ROOT, "examples"))
    import train_gpt

    # The size of GPT-2, on bytes.
    model = train_gpt.GPT(512, 12, 12, 768).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(0, 256, (8, 513), device="cuda")

    def step():
        # As people train: the GPU is then quick enough to wait for the host.
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    def timed():
        count = 3 if options.quick else 10
        step()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    names = ["off", "memlab no stacks", "memlab", "torch python", "torch all"]
    result = summary(interleaved(names, options.repeats, timed), 1e3)
    base = result["off"]["median"]
    for row in result.values():
        row["over_off"] = row["median"] / base - 1
    return result


# ---- Reading and writing what was recorded ----


def bench_snapshot(options):
    import pickle

    import torch

    import memlab
    from memlab import _core

    result = {}
    for events in (10_000,) if options.quick else (100_000, 1_000_000):
        rows = {}
        repeats = 3 if events > 100_000 else 5
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snapshot.pickle")
            torch.cuda.memory._record_memory_history(
                "all", context="all", stacks="python", max_entries=events
            )
            with memlab.MemorySnapshot(max_entries=events) as snapshot:
                make_events(events)
                times = []
                for _ in range(repeats):
                    begin = time.perf_counter()
                    recording = snapshot.data()
                    read = time.perf_counter()
                    recording.write_pickle(path, False)
                    times.append((read - begin, time.perf_counter() - read))
                rows["memlab"] = snapshot_row(times, path)
                kept = recording.counts(0)["events"]
                del recording
                times = []
                for _ in range(1 if events > 100_000 else 3):
                    begin = time.perf_counter()
                    taken = torch.cuda.memory._snapshot()
                    read = time.perf_counter()
                    with open(path, "wb") as file:
                        pickle.dump(taken, file)
                    times.append((read - begin, time.perf_counter() - read))
                    del taken
                rows["torch"] = snapshot_row(times, path)
            torch.cuda.memory._record_memory_history(None)
        rows["events"] = kept
        rows["record_bytes_per_event"] = _core.EVENT_BYTES
        result[str(events)] = rows
    return result


def snapshot_row(times, path):
    return {
        "read_s": statistics.median(t[0] for t in times),
        "write_s": statistics.median(t[1] for t in times),
        "total_s": statistics.median(sum(t) for t in times),
        "file_bytes": os.path.getsize(path),
    }


def make_events(count):
    """Fills a history: frees and allocations from stacks like a training step's."""
    import torch

    def layer():
        for _ in range(100):
            torch.empty(4096, device="cuda")

    for i in range(count // 300 + 1):
        deep(4 + i % 16, layer)


# ---- Output ----


def show(results):
    m = results["machine"]
    print(f"{m['device']}, torch {m['torch']}, Python {m['python']}, {m['cores']} cores "
          f"of {m['processor']}, {m['date']}, memlab {m['revision']}")
    if m["phantom"]:
        print("Phantom device: shares of a step are not those of a GPU.")
    print("\nOne allocation and free (3 events), stack of "
          f"{DEPTH} Python frames; median (lowest to highest)")
    for name, row in results["event"].items():
        print(f"  {name:20} {row['median']:9.0f} ns ({row['lowest']:.0f} to "
              f"{row['highest']:.0f})  {row['ns_per_event_over_off']:8.0f} ns an event "
              "over off")
    mine = results["event"]["memlab"]["ns_per_event_over_off"]
    theirs = results["event"]["torch python"]["ns_per_event_over_off"]
    print(f"  with Python stacks torch's recorder adds {theirs / mine:.1f} times as much")
    print("\nOne training step of the model in examples/train_gpt.py, in the size of GPT-2")
    for name, row in results["step"].items():
        print(f"  {name:20} {row['median']:9.3f} ms ({row['lowest']:.3f} to "
              f"{row['highest']:.3f})  {100 * row['over_off']:+7.2f} %")
    for events, rows in results["snapshot"].items():
        print(f"\nReading and writing {rows['events']} events (asked for {events})")
        for name in ("memlab", "torch"):
            row = rows[name]
            print(f"  {name:20} {1e3 * row['total_s']:9.1f} ms (read "
                  f"{1e3 * row['read_s']:.1f}, write {1e3 * row['write_s']:.1f})  "
                  f"{row['file_bytes'] / max(rows['events'], 1):6.1f} bytes an event in "
                  "the file")
        ratio = rows["torch"]["total_s"] / rows["memlab"]["total_s"]
        print(f"  torch takes {ratio:.1f} times as long; memlab keeps "
              f"{rows['record_bytes_per_event']} bytes an event in memory")


if __name__ == "__main__":
    main()
