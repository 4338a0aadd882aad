"""Runs public programs from checkouts of the user's, and tries each advice on them.

    make programs DIR=CHECKOUTS

CHECKOUTS has a clone of each repository of programs.ini, under the repository's name.
Options: --only NAME...; --table FILE puts what was seen into the table of a page.
The status is 1 where something is wrong; what cannot run here is counted as left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import programs
import runs

from memlab._text import wording

HEAD = "| program | commit | peak | advice | where | promised | measured |\n|" + "---|" * 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--table", type=Path, metavar="FILE")
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
            for part in runs.see(program, options.checkouts):
                if isinstance(part, runs.Tried):
                    print(f"  {told(part)}", flush=True)
                else:
                    seen.append(part)
                    wrong[program.name] = part.problems
        except runs.Failed as failure:
            wrong[program.name] = [str(failure)]
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    if options.table:
        write_table(options.table, seen)
    wrong = {name: problems for name, problems in wrong.items() if problems}
    for name, problems in wrong.items():
        for problem in problems:
            print(f"wrong: {name}: {problem}")
    for name, why in left.items():
        print(f"left out: {name}: {why}")
    print(f"{len(seen)} programs ran, {len(wrong)} with something wrong, {len(left)} left out")
    return bool(wrong)


def amounts(item: runs.Tried, of: dict[str, int] | None) -> str:
    if of is None:
        return "not tried"
    return ", ".join(f"{wording.size(of[peak])} {peak}" for peak in item.told)


def told(item: runs.Tried) -> str:
    promise = f"promised {amounts(item, item.promised)}"
    measured = f"measured {amounts(item, item.measured)}"
    return " | ".join(filter(None, [item.kind, item.where, promise, measured, *item.wrong]))


def rows(seen: runs.Seen) -> list[str]:
    """Of the table: one for each advice, or one that says that there is none."""
    program = seen.program
    commit = f"{programs.GITHUB}{program.repository}/commit/{program.commit}"
    peak = ", ".join(f"{wording.size(size)} {name}" for name, size in seen.peak.items())
    start = f"| {program.name} | [{program.commit[:8]}]({commit}) | {peak} |"
    return [
        f"{start} {item.kind} | {item.where} | {amounts(item, item.promised)} | "
        f"{amounts(item, item.measured)} |"
        for item in seen.tried
    ] or [f"{start} none | | | |"]


def write_table(page: Path, seen: list[runs.Seen]) -> None:
    """Puts the rows of what was seen into the table at the end of PAGE; others stay."""
    text, _, table = page.read_text().partition(HEAD)
    found: dict[str, list[str]] = {}
    for row in filter(None, table.splitlines()):
        found.setdefault(row.split("|")[1].strip(), []).append(row)
    found.update((of.program.name, rows(of)) for of in seen)
    names = [program.name for program in programs.read() if program.name in found]
    lines = [row for name in names for row in found[name]]
    page.write_text("\n".join([text + HEAD, *lines, ""]))


if __name__ == "__main__":
    sys.exit(main())
