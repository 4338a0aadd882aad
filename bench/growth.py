"""Whether memlab sees growth in training programs that do not leak: those of fit_programs.py.

    memlab phantom python bench/growth.py > FILE    # one line of JSON a program
    memlab phantom python bench/growth.py NAME...

Each trains for eight steps, or as many as it says, in a process of its own.  Limits of growth.h
may be set by those of half "a", every second one by name; half "b" is the test.  `alarms`
counts the lines that grow for certain, `perhaps` those of too few steps.
"""

import json
import os
import signal
import sys
import traceback
import warnings

import fit_programs
import fit_training

import memlab

STEPS = 8


def run(name):
    """Runs a program; what grows in it, as a dict."""
    warnings.filterwarnings("ignore")
    fit_training.STEPS = STEPS
    snapshot = memlab.MemorySnapshot(source="cuda", max_entries=20_000_000)
    snapshot.start()
    fit_programs.PROGRAMS[name]()
    snapshot.stop()
    recording = snapshot.data()
    growth = recording.growth(0)
    lines = growth.pop("lines")
    return {
        "name": name,
        "half": "ab"[sorted(fit_programs.PROGRAMS).index(name) % 2],
        "steps": growth["steps"],
        "steps_by": growth["steps_by"],
        "peak_bytes": recording.verdict(0)["peak"]["allocated_bytes"],
        "alarms": sum(line["certain"] for line in lines),
        "perhaps": sum(not line["certain"] for line in lines),
        "lines": [
            [os.path.basename(line["file"]), line["line"], line["bytes_per_step"], line["steps"]]
            for line in lines
        ],
    }


def run_apart(name):
    """Prints the line of a program, run in a forked child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        signal.alarm(300)
        print(json.dumps(run(name)), flush=True)
    except BaseException:
        print(json.dumps({"name": name, "error": traceback.format_exc(limit=1)}), flush=True)
    os._exit(0)


def main():
    for name in sys.argv[1:] or sorted(fit_programs.PROGRAMS):
        run_apart(name)


if __name__ == "__main__":
    main()
