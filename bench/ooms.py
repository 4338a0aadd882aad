"""Whether the batch that is named after an out of memory is the largest that fits.

    python bench/ooms.py > FILE          # all programs of tests/programs/ooms, on the phantom
    python bench/ooms.py NAME...
    python bench/ooms.py --wide NAME...    # with several batches each
    python bench/ooms.py --jobs 14 ...     # so many programs at once
    python bench/ooms.py --allowed 22.5 ...    # on the GPU that is here, with 22.5 GiB of it

Each runs with a batch that is too large; with --wide also with others, from just too large to
half as large again, which end in other places.  The truth is found by bisection, each batch in
a run of its own, to one part in 50; runs are kept in build/ooms.json, by program, memlab's
phantom and version of torch.  With --allowed torch gets no more of the GPU than that, which needs
torch 2.10 or newer; programs of two processes are left out.

The exit status is 1 if a named batch does not fit, if a batch more than 15 % above it does and
is not the next integer, or if neither a batch nor a command is told, nor that memory grows.
"""

import argparse
import hashlib
import json
import platform
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import oom_programs  # noqa: E402
import torch  # noqa: E402

from memlab import phantom  # noqa: E402

# Of the least that does not fit.
_WIDE = (1.03, 1.12, 1.5)

KEPT = ROOT / "build" / "ooms.json"


class Runs:
    """What fits, from runs that are kept.  Several threads may ask; each runs what it asks."""

    def __init__(self, device):
        self._kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        self._ran_on = Path(phantom.LIBRARY).read_bytes() + device.encode()
        self._lock = threading.Lock()

    def fits(self, name, batch):
        program = (oom_programs.FOLDER / f"{name}.py").read_bytes()
        version = torch.__version__.encode()
        key = hashlib.sha256(program + self._ran_on + version).hexdigest()[:16]
        with self._lock:
            known = self._kept.setdefault(key, {}).get(str(batch))
        if known is not None:
            return known
        with tempfile.TemporaryDirectory() as folder:
            answer = oom_programs.fits(name, batch, Path(folder))
        with self._lock:
            self._kept[key][str(batch)] = answer
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(self._kept))
        return answer


def truth(runs, name, given, fit):
    """(the largest that fits, the least that does not), from what is named where it is."""
    assert not runs.fits(name, given), f"{name} does not run out of memory"
    good, bad = 0, given
    if fit["batch_named"] and fit["batch"] and runs.fits(name, fit["batch"]):
        good = fit["batch"]
        above = oom_programs.most_above(good) + 1
        if above < bad and not runs.fits(name, above):
            bad = above
    return oom_programs.largest(name, bad, runs.fits, good)


def batches(runs, name, wide):
    """Batches that are too large."""
    given = oom_programs.batch_of(name)
    if not wide:
        return [given]
    _, bad = oom_programs.largest(name, given, runs.fits)
    return sorted({given, *(round(bad * times) for times in _WIDE)})


def judge(fit, good, named_fits):
    """(the verdict in a few words, whether it is right).  A larger batch may fit where the named
    one does not, as other blocks are free."""
    if fit["batch_named"]:
        named = fit["batch"]
        above = f"{(good - named) / named:+.0%}" if named else "no batch fits"
        return above, named_fits and named <= good <= oom_programs.most_above(named)
    least, most = (
        round(fit[key] * fit["batch_recorded"]) for key in ("batch_factor", "batch_factor_most")
    )
    why = "; ".join(fit["untold_because"]) or f"{least} to {most}"
    text = fit["batch_text"]
    return f"cannot tell: {why}", "memlab fit" in text or "only puts it off" in text


def try_program(runs, name, given):
    """(the line that tells it, whether a batch is named, whether what is said is right)."""
    with tempfile.TemporaryDirectory() as folder:
        verdict, _ = oom_programs.make_fit(name, Path(folder), given)
    fit, first = verdict["make_fit"], verdict["findings"][0]
    good, bad = truth(runs, name, given, fit)
    named_fits = fit["batch_named"] and (not fit["batch"] or runs.fits(name, fit["batch"]))
    said, right = judge(fit, good, named_fits)
    place = f"{first['stage']} {first['module']}"[:34]
    named = fit["batch"] if fit["batch_named"] else "-"
    line = (
        f"{name:16} {fit['batch_recorded']:6}  {place:34} {named:>6} {good:6} {bad:6}  "
        f"{said}{'' if right else '  WRONG'}"
    )
    return line, fit["batch_named"], right


def trials(runs, names, wide, jobs):
    """What try_program() says of each program and batch, as they end."""
    with ThreadPoolExecutor(jobs) as pool:
        found = {pool.submit(batches, runs, name, wide): name for name in names}
        tried = [
            pool.submit(try_program, runs, found[done], given)
            for done in as_completed(found)
            for given in done.result()
        ]
        for done in as_completed(tried):
            yield done.result()


def allow(gib):
    """Runs the programs on the GPU that is here, with GIB of it; what that is, in words."""
    _, total = torch.cuda.mem_get_info()
    setting = f"per_process_memory_fraction:{gib * 2**30 / total:.6f}"
    oom_programs.device = {"PYTORCH_CUDA_ALLOC_CONF": setting}
    return f"{gib:g} GiB of {torch.cuda.get_device_name()} ({total / 2**30:.1f} GiB)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", default=oom_programs.NAMES, metavar="NAME")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--allowed", type=float, metavar="GIB")
    options = parser.parse_args()
    names = options.names
    device = f"Phantom device ({oom_programs.GPU})"
    if options.allowed:
        device = allow(options.allowed)
        names = [name for name in names if "processes" not in name]
    runs = Runs(device)
    print(
        f"{device}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()} "
        f"({platform.system()}), {time.strftime('%Y-%m-%d')}\n\n"
        "given: the batch with which the program runs out of memory; fits, not: the largest that\n"
        "fits and the least that does not, by bisection to 2 %; named: what the verdict says.\n\n"
        f"{'program':16} {'given':>6}  {'ran out in':34} {'named':>6} {'fits':>6} {'not':>6}  "
        "largest that fits"
    )
    tried = told = wrong = 0
    for line, named, right in trials(runs, names, options.wide, options.jobs):
        print(line, flush=True)
        tried += 1
        told += named
        wrong += not right
    print(f"\n{told} of {tried} are named; {wrong} wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
