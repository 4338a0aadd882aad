"""Runs public programs from checkouts of the user's, and tries each advice on them.

    make programs DIR=CHECKOUTS

CHECKOUTS has a clone of each repository of programs.ini, under the repository's name.
Options: --only NAME...; --parts ends, how each ends under memlab's commands, or advice,
what its advice is worth (both); --table FILE puts what was seen into the tables of a page.
The status is 1 where something is wrong; what cannot run here is counted as left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ends
import programs
import runs

from memlab._text import wording

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("ends", "advice")
ENDS_HEAD = (
    "| program | alone | run | fit | lines | unknown | parameters | in blocks | made up |\n"
    + "|---|" + "---|" * 8
)
HEAD = "| program | commit | peak | advice | where | promised | measured |\n|" + "---|" * 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--table", type=Path, metavar="FILE")
    options = parser.parse_args()
    left, wrong, seen, ended = {}, {}, [], []
    for program in programs.read():
        if options.only and program.name not in options.only:
            continue
        why = program.left_out(options.checkouts)
        if why:
            left[program.name] = why
            continue
        begun = time.monotonic()
        print(f"{program.name}: {program.script} {' '.join(program.arguments)}", flush=True)
        wrong[program.name] = []
        try:
            if "ends" in options.parts:
                ended.append(ends.see(program, options.checkouts))
                print(f"  {ends_row(ended[-1])}", flush=True)
                wrong[program.name] += ended[-1].problems
            for part in advised(program, options):
                if isinstance(part, runs.Tried):
                    print(f"  {told(part)}", flush=True)
                else:
                    seen.append(part)
                    wrong[program.name] += part.problems
        except runs.Failed as failure:
            wrong[program.name].append(str(failure))
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    if options.table:
        write_table(options.table, ENDS_HEAD, {of.program.name: [ends_row(of)] for of in ended})
        write_table(options.table, HEAD, {of.program.name: rows(of) for of in seen})
    ran = len(wrong)
    wrong = {name: problems for name, problems in wrong.items() if problems}
    for name, problems in wrong.items():
        for problem in problems:
            print(f"wrong: {name}: {problem}")
    for name, why in left.items():
        print(f"left out: {name}: {why}")
    print(f"{ran} programs ran, {len(wrong)} with something wrong, {len(left)} left out")
    return bool(wrong)


def advised(program: programs.Program, options: argparse.Namespace) -> Iterator[runs.Tried | runs.Seen]:
    """Tries the advice, if that is asked for: on one rank, of a program that can be changed."""
    possible = program.repository and not program.launcher and "run" not in program.limited
    if "advice" in options.parts and possible:
        yield from runs.see(program, options.checkouts)


def ends_row(of: ends.Ended) -> str:
    """Of the table of ends."""
    status = " | ".join(str(of.status[command]) for command in ends.COMMANDS)
    right = "right" if of.right else "**wrong**"
    parameters = f"{of.elements:,} | {of.parameters[0]:,} {right}" if of.elements else " | "
    return f"| {of.program.name} | {status} | {of.unknown:.2%} | {parameters} | {of.made_up:,} |"


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


def write_table(page: Path, head: str, new: dict[str, list[str]]) -> None:
    """Puts the rows of NEW, by program, into the table of PAGE below HEAD; others stay."""
    before, _, behind = page.read_text().partition(head)
    table, _, after = behind.partition("\n\n")
    found: dict[str, list[str]] = {}
    for row in filter(None, table.splitlines()):
        found.setdefault(row.split("|")[1].strip(), []).append(row)
    found.update(new)
    lines = [row for program in programs.read() for row in found.get(program.name, [])]
    end = f"\n\n{after}" if after else "\n"
    page.write_text("\n".join([before + head, *lines]) + end)


if __name__ == "__main__":
    sys.exit(main())
