"""What memlab adds to the start of Python, of its own command and of a program with torch.

    python bench/startup.py [TIMES] [--no-bridge]

Each command is a process of its own; they take turns, TIMES of them each (default: 15).
Printed is the processor's time, of the process and of those it started: the median and the
quartiles, and the median as a multiple of `python -c pass`.  The bridge is built once, into an
empty cache and without a compiler's cache.  Without a GPU torch's programs run on the phantom.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from paired import quartiles

from memlab import phantom
from memlab._native import devices

PLAIN = "python -c pass"
TORCH = "a program that imports torch"
GPU = "a program that allocates on the GPU"
PROGRAMS = {TORCH: "import torch\n", GPU: "import torch\ntorch.zeros(1 << 20, device='cuda')\n"}
BRIDGE = (
    "import sys; from memlab._native import bridge; "
    "bridge.build(sys.argv[1], bridge.find_torch())"
)


def commands(folder):
    """{what it is: the words after python}."""
    words = {
        PLAIN: ["-c", "pass"],
        "import memlab": ["-c", "import memlab"],
        "memlab --help": ["-m", "memlab", "--help"],
    }
    for number, (name, text) in enumerate(PROGRAMS.items()):
        path = folder / f"program{number}.py"
        path.write_text(text)
        words[name] = [str(path)]
        words[f"{name}, under memlab run"] = [
            "-m", "memlab", "run", "--out", str(folder / "out"), str(path)]
    return words


def environment():
    kept = dict(os.environ)
    # As installed: modules are compiled once.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    if not devices.gpu_present():
        kept |= phantom.environment() | {"MEMLAB_PHANTOM_QUIET": "1"}
    return kept


def seconds(words, **variables):
    """Seconds of processor time of `python WORDS`, which must succeed."""
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen([sys.executable, *words], env=environment() | variables,
                                   stdout=nothing, stderr=subprocess.PIPE)
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"python {' '.join(words)}: status {status}: {said.decode()}")
    return used.ru_utime + used.ru_stime


def main():
    options = sys.argv[1:]
    times = int(next((word for word in options if word.isdigit()), 15))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = commands(folder)
        taken = {what: [] for what in words}
        for repeat in range(times + 1):
            for what in random.sample(list(words), len(words)):
                value = seconds(words[what])
                if repeat > 0:  # the first compiles modules
                    taken[what].append(value)
        plain = quartiles(taken[PLAIN])[1]
        print(f"{'':50} {'ms, of the processor':>24}   x {PLAIN}")
        for what, values in taken.items():
            first, middle, third = (value * 1e3 for value in quartiles(values))
            print(f"{what:50} {middle:8.1f} [{first:.1f}..{third:.1f}]"
                  f"{middle / 1e3 / plain:10.2f}")
        for what in PROGRAMS:
            added = [after - before for before, after in
                     zip(taken[what], taken[f"{what}, under memlab run"], strict=True)]
            first, middle, third = quartiles(added)
            print(f"memlab run adds to {what}: {middle:.2f} s [{first:.2f}..{third:.2f}]")
        if "--no-bridge" not in options:
            built = seconds(["-c", BRIDGE, str(folder / "_torch.so")], CCACHE_DISABLE="1")
            print(f"the bridge to torch, built: {built:.1f} s")


if __name__ == "__main__":
    main()
