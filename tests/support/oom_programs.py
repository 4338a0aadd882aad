"""The programs of tests/programs/ooms on the phantom device: what fits, and what memlab
says of it."""

import os
import re

import warm
from lines_programs import MEMLAB
from on_phantom import PROGRAMS, ROOT

from memlab import phantom
from memlab._files import load

FOLDER = PROGRAMS / "ooms"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
GPU = "rtx4090"
# What the programs run on, as environment variables.  bench/ooms.py may set others.
device = {
    **phantom.environment(gpu=GPU),
    "MEMLAB_PHANTOM_QUIET": "1",
    "CUDA_VISIBLE_DEVICES": "0",
    "PYTORCH_CUDA_ALLOC_CONF": "",
}
# What torch raises where its allocator, cuDNN's engines or cuBLAS get no memory.
_OUT = ("OutOfMemoryError", "unable to find an engine", "CUBLAS_STATUS_ALLOC_FAILED")


def batch_of(name):
    """The batch with which it runs out of memory."""
    text = (FOLDER / f"{name}.py").read_text()
    return int(re.search(r'"--batch", type=int, default=(\d+)', text)[1])


def _shared(name, folder):
    return {"MEMLAB_PHANTOM_SHARED": str(folder / "shared")} if "processes" in name else {}


def _environment(variables):
    return {**os.environ, **device, **variables}


def fits(name, batch, folder, variables=None):
    """Whether it ends with BATCH, and environment VARIABLES."""
    env = _environment({**_shared(name, folder), **(variables or {})})
    done = warm.run(FOLDER / f"{name}.py", "--batch", str(batch), env=env)
    out = any(text in done.stderr for text in _OUT)
    assert done.returncode == 0 or out, (done.returncode, done.stderr[-2000:])
    return done.returncode == 0


def make_fit(name, folder, batch=None):
    """What the verdict says of a run with BATCH that ran out of memory, and what stderr said;
    None: the batch with which it does."""
    out = folder / "out"
    done = warm.run(
        MEMLAB.format(variables=_shared(name, folder)),
        *("run", "--out", out, FOLDER / f"{name}.py", "--batch", batch or batch_of(name)),
        env=_environment({}),
        cwd=ROOT,
    )
    recording = load.read_recording(out / "rank0.mlab")
    return recording.verdict(0, trials=True), done.stderr


def largest(name, below, fits, good=0):
    """(the largest batch found that fits, the least that does not), one part in 50 apart, from
    GOOD, which fits, to BELOW, which does not; FITS(name, batch)."""
    bad = below
    while bad - good > max(1, good // 50):
        middle = (good + bad) // 2
        if fits(name, middle):
            good = middle
        else:
            bad = middle
    return good, bad


def most_above(named):
    """The largest batch that may fit where NAMED is told to be the largest."""
    return max(named + 1, named * 115 // 100)
