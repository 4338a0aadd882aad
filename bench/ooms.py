"""Whether the batch that is named after an out of memory is the largest that fits.

    python bench/ooms.py > FILE          # all programs of tests/programs/ooms, on the phantom
    python bench/ooms.py NAME...
    python bench/ooms.py --wide NAME...    # with several batches each

Each runs with a batch that is too large; with --wide also with others, from just too large to
half as large again, which end in other places.  The truth is found by bisection, each batch in
a run of its own, to one part in 50; runs are kept in build/ooms.json, by program, memlab's
phantom and version of torch.  The exit status is 1 if a named batch does not fit, if a batch
more than 15 % above it does and is not the next integer, or if no batch and no command is told.
"""

import hashlib
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import oom_programs  # noqa: E402
import torch  # noqa: E402

from memlab import phantom  # noqa: E402
from memlab._report import make_fit as words  # noqa: E402

# Of the least that does not fit.
_WIDE = (1.03, 1.12, 1.5)

KEPT = ROOT / "build" / "ooms.json"


class Runs:
    """What fits, from runs that are kept."""

    def __init__(self):
        self._kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        self._library = Path(phantom.LIBRARY).read_bytes()

    def fits(self, name, batch):
        program = (oom_programs.FOLDER / f"{name}.py").read_bytes()
        version = f"{torch.__version__} {oom_programs.GPU}".encode()
        key = hashlib.sha256(program + self._library + version).hexdigest()[:16]
        known = self._kept.setdefault(key, {})
        if str(batch) not in known:
            with tempfile.TemporaryDirectory() as folder:
                known[str(batch)] = oom_programs.fits(name, batch, Path(folder))
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps(self._kept))
        return known[str(batch)]


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


def judge(fit, good):
    """(the verdict in a few words, whether it is right)."""
    if fit["batch_named"]:
        named = fit["batch"]
        above = f"{(good - named) / named:+.0%}" if named else "no batch fits"
        return above, named <= good <= oom_programs.most_above(named)
    least, most = (
        int(fit[key] * fit["batch_recorded"]) for key in ("batch_factor", "batch_factor_most")
    )
    why = "; ".join(fit["untold_because"]) or f"{least} to {most}"
    return f"cannot tell: {why}", "memlab fit" in words.batch(fit)


def main():
    arguments = sys.argv[1:]
    wide = "--wide" in arguments
    names = [word for word in arguments if word != "--wide"] or oom_programs.NAMES
    runs = Runs()
    print(
        f"Phantom device ({oom_programs.GPU}), torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()} "
        f"({platform.system()}), {time.strftime('%Y-%m-%d')}\n\n"
        "given: the batch with which the program runs out of memory; fits, not: the largest that\n"
        "fits and the least that does not, by bisection to 2 %; named: what the verdict says.\n\n"
        f"{'program':16} {'given':>6}  {'ran out in':34} {'named':>6} {'fits':>6} {'not':>6}  "
        "largest that fits"
    )
    tried = told = wrong = 0
    for name, given in ((name, batch) for name in names for batch in batches(runs, name, wide)):
        with tempfile.TemporaryDirectory() as folder:
            verdict, _ = oom_programs.make_fit(name, Path(folder), given)
        fit, first = verdict["make_fit"], verdict["findings"][0]
        good, bad = truth(runs, name, given, fit)
        said, right = judge(fit, good)
        place = f"{first['stage']} {first['module']}"[:34]
        named = fit["batch"] if fit["batch_named"] else "-"
        print(
            f"{name:16} {fit['batch_recorded']:6}  {place:34} {named:>6} {good:6} {bad:6}  "
            f"{said}{'' if right else '  WRONG'}",
            flush=True,
        )
        tried += 1
        told += fit["batch_named"]
        wrong += not right
    print(f"\n{told} of {tried} are named; {wrong} wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
