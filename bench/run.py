"""Measures memlab against torch's own recorder and pytorch_memlab's line profiler and reporter, each in
one run, on the same work.

    make bench                             a table, and build/bench.json
    python bench/run.py --json FILE        every repeat's value, as FILE
    python bench/run.py --only step --step hf-gpt2:4x256:float32

Runs on a GPU where there is one, else on the phantom device (where kernels are no-ops, so
that a step is all overhead and shares of it are larger than on a GPU).  bench/README.md
says what is measured and how to read it.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
KINDS = ("step", "event", "lines", "reporter", "memory", "snapshot")
STEPS = ("hf-gpt2:8x512:bfloat16", "hf-gpt2:8x512:float32", "hf-gpt2:1x128:bfloat16",
         "example:8x512:bfloat16")


def main():
    options = arguments()
    from memlab import phantom
    from memlab._native import devices

    if not devices.gpu_present():
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, **phantom.environment(), "MEMLAB_PHANTOM_QUIET": "1"})
    if options.part:
        return write(options.json, measure(options, options.part))
    results = {"repeats": options.repeats, "parts": {}}
    for part in parts(options):
        result = run_part(part)
        results["machine"] = result.pop("machine", None) or results.get("machine")
        results["parts"][part] = result
        write(options.json, results)  # a run that is cut short leaves what it has
    import table

    table.show(results)
    print(f"\nFigures: {options.json}")


def arguments():
    import steps

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there",
                        default=os.path.join(ROOT, "build", "bench.json"))
    parser.add_argument("--repeats", type=int, help="of each recorder (default: 31)")
    parser.add_argument("--only", action="append", choices=KINDS,
                        help="measure this alone; may be given again")
    parser.add_argument("--step", action="append", metavar="MODEL:BATCHxLENGTH:PRECISION",
                        help="a training step to measure; may be given again "
                        f"(default: {' '.join(STEPS)}; models: {' '.join(steps.MODELS)})")
    parser.add_argument("--quick", action="store_true", help="a small rehearsal")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.step = options.step or list(STEPS)
    options.only = options.only or KINDS
    options.repeats = options.repeats or (3 if options.quick else 31)
    for text in options.step:
        try:
            steps.parse(text)
        except ValueError:
            parser.error(f"--step {text}: write for example {STEPS[0]}")
    return options


def parts(options):
    """The names of what is to be measured, in order."""
    import recorders

    sizes = (10_000,) if options.quick else (100_000, 1_000_000)
    names = {
        "step": options.step,
        "event": ["cached"],
        "lines": ["loop"],
        "reporter": ["tensors"],
        "memory": recorders.names("torch no stacks", "torch python")[1:],
        "snapshot": sizes,
    }
    return [f"{kind}/{name}" for kind in KINDS if kind in options.only
            for name in names[kind]]


def run_part(part):
    """Measures PART in a process of its own: in it memlab's tracker is not attached at
    first, and what earlier parts left does not count."""
    print(f"{part} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "part.json")
        command = [sys.executable, *sys.argv, "--part", part, "--json", path]
        status = subprocess.run(command).returncode
        if status != 0:
            return {"failed": f"exit status {status}"}
        with open(path) as file:
            return json.load(file)


def measure(options, part):
    import events
    import lines
    import reporter
    import space
    import steps

    kind, _, name = part.partition("/")
    if kind == "step":
        result = steps.bench_step(options, name)
    elif kind == "event":
        result = events.bench_event(options)
    elif kind == "lines":
        result = lines.bench_lines(options)
    elif kind == "reporter":
        result = reporter.bench_reporter(options)
    elif kind == "memory":
        result = space.bench_memory(options, name)
    else:
        result = space.bench_snapshot(options, int(name))
    return {**result, "machine": machine()}


def machine():
    import torch

    from memlab._native import devices

    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT,
                              capture_output=True, text=True).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(),
        "phantom": devices.under_phantom(),
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


def write(path, results):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w") as file:
        json.dump(shorten(results), file, indent=1)
        file.write("\n")


def shorten(value):
    """VALUE with floats of six digits: more is noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [shorten(item) for item in value]
    return value


if __name__ == "__main__":
    main()
