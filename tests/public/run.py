"""Runs public programs from checkouts of the user's, and tries each advice on them.

    make programs DIR=CHECKOUTS

CHECKOUTS has a clone of each repository of programs.ini, under the repository's name.
Options: --only NAME...; --table FILE writes the table; --keep DIR the recordings.
The status is 1 where something is wrong; what cannot run here is counted as left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import programs
import runs

from memlab._text import wording


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args()
    left, wrong, seen = {}, {}, []
    for program in programs.read():
        if options.only and program.name not in options.only:
            continue
        why = program.left_out(options.checkouts)
        if why:
            left[program.name] = why
            continue
        begun = time.monotonic()
        print(f"{program.name}: {program.script} {' '.join(program.arguments)}", flush=True)
        try:
            for part in runs.see(program, options.checkouts, options.keep):
                if isinstance(part, runs.Tried):
                    print(f"  {told(part)}", flush=True)
                else:
                    seen.append(part)
                    wrong[program.name] = part.wrong + [
                        f"{item.kind} {item.where}: {problem}"
                        for item in part.tried
                        for problem in item.wrong
                    ]
        except runs.Failed as failure:
            wrong[program.name] = [str(failure)]
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    wrong = {name: problems for name, problems in wrong.items() if problems}
    for name, problems in wrong.items():
        for problem in problems:
            print(f"wrong: {name}: {problem}")
    for name, why in left.items():
        print(f"left out: {name}: {why}")
    print(f"{len(seen)} programs ran, {len(wrong)} with something wrong, {len(left)} left out")
    return bool(wrong)


def told(item: runs.Tried) -> str:
    words = [item.kind, item.where]
    for peak in item.told:
        measured = item.measured and wording.size(item.measured[peak])
        promised = wording.size(item.promised[peak])
        words.append(f"{peak}: promised {promised}, measured {measured}")
    return " | ".join(filter(None, [*words, *item.wrong]))


if __name__ == "__main__":
    sys.exit(main())
