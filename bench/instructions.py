"""Instructions and cache misses that recording adds to a training step, by part.

    python bench/instructions.py               # needs valgrind; some minutes
    python bench/instructions.py --json FILE

Runs two steps of a model under valgrind's callgrind, with nothing recorded, in memory and to a
file, on the phantom device.  The caches are those of a server's core: 32 KiB for instructions, 48
KiB for data, a second level of 2 MiB.  Unlike times the numbers do not vary with what else a
machine does; what they cost does with the machine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEP = "example:1x128:float32"
MODES = ("off", "memlab", "memlab file")
COUNTED = 2
# Of callgrind's columns: instructions, and misses of instructions, reads and writes in the first
# level, then in the second.
COLUMNS = {"Ir": 0, "I1": 3, "D1": (4, 5), "L2": (6, 7, 8)}
# What each row counts: a function with all that it calls.
PARTS = {
    "all": "PROGRAM TOTALS",
    "an event, in torch's allocator": "DeviceCachingAllocator::record_trace(",
    "of it memlab": "ml_tracker_call(",
    "of it autograd's numbers": "ml_autograd_fill ",
    "of it the stack": "ml_frames_capture ",
    "of it the ledger": "ml_ledger_apply ",
    "of it packing": "ml_lane_push",
    "of it the file, before": "ml_journal_port_begin ",
    "of it the file, after": "ml_journal_port_record ",
    "a node of the backward pass gets its thread's state": "ThreadLocalState::setThreadLocalState(",
    "tags at the optimizer's step": "ml_owners_step ",
    "tensors are made": "alloc_noticing ",
}


def main():
    from memlab import phantom

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there",
                        default=str(ROOT / "build" / "instructions.json"))
    parser.add_argument("--step", default=STEP, metavar="MODEL:BATCHxLENGTH:PRECISION")
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        return work(options)
    environment = {**os.environ, **phantom.environment(), "MEMLAB_PHANTOM_QUIET": "1",
                   "PYTHONHASHSEED": "0"}
    environment.pop("MEMLAB_PHANTOM_VALUES", None)
    with tempfile.TemporaryDirectory() as folder:
        results = {mode: measure(mode, options.step, environment, folder) for mode in MODES}
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    Path(options.json).write_text(json.dumps(results))
    show(results)


def work(options):
    """The program that callgrind runs."""
    import recorders
    import steps
    import torch

    from memlab._native import devices

    torch.set_num_threads(1)
    # Values of the phantom's own would be counted, too.
    devices.under_phantom = bool
    name, batch, length, precision = steps.parse(options.step)
    step = steps.training(*steps.MODELS[name](batch, length), precision)
    for _ in range(2):
        step().item()
    events = steps.events_of(step)
    with recorders.recorder(options.mode):
        for _ in range(3):
            step().item()
        control("-i", "on")
        step().item()
        control("-z")
        for _ in range(COUNTED):
            step().item()
        control("-d")
        control("-i", "off")
    print(events)


def control(*words):
    subprocess.run(["callgrind_control", *words, str(os.getpid())], check=True,
                   stdout=subprocess.DEVNULL)


def measure(mode, step, environment, folder):
    """Events of a step, and by part its figures in MODE."""
    out = Path(folder) / f"{mode.replace(' ', '_')}.out"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes",
         "--I1=32768,8,64", "--D1=49152,12,64", "--LL=2097152,16,64",
         f"--callgrind-out-file={out}", sys.executable, __file__, "--mode", mode,
         "--step", step],
        env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return {"events": int(done.stdout.split()[-1]), "parts": parts(f"{out}.1")}


def parts(path):
    text = subprocess.run(
        ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", path],
        check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        cells = re.match(r"\s*((?:(?:[\d,]+ \(\s*[\d.]+%\)|0|\.)\s+){9})(\S.*)", line)
        if cells is None:
            continue
        values = [int(cell.replace(",", "")) if cell != "." else 0
                  for cell in re.findall(r"([\d,]+|\.)(?: \(\s*[\d.]+%\))?\s+", cells[1])]
        for part, function in PARTS.items():
            # A function may stand there again, as what the compiler made of a part of it.
            if function in cells[2] + " " and part not in found:
                found[part] = values
    return found


def show(results):
    events = results["memlab"]["events"]
    base = results["off"]["parts"]
    print(f"{events:,} events a step.  Instructions (Ir), and misses: I1 and D1 of instructions and "
          "data in the first level,\nL2 of either in the second; added, an event.")
    for mode in MODES[1:]:
        print(f"\n{mode:54}" + "".join(f"{name:>9}" for name in COLUMNS))
        for part, values in results[mode]["parts"].items():
            before = base.get(part, [0] * len(values))
            cells = []
            for where in COLUMNS.values():
                places = where if isinstance(where, tuple) else (where,)
                added = sum(values[i] - before[i] for i in places)
                cells.append(f"{added / events / COUNTED:9,.1f}")
            print(f"  {part:52}" + "".join(cells))
    all_of = results["memlab"]["parts"]["all"][0] / base["all"][0] - 1
    print(f"\nIn memory: {all_of:+.1%} of a step's {base['all'][0] / COUNTED:,.0f} instructions.")


if __name__ == "__main__":
    main()
