"""Writes bench/results/README.md: which command made each file of figures, and where it is told.

    python bench/results_table.py             # in a clone with its history

`index.tsv` has a row for each file.  A file is marked as older if the code that it measures,
the column `measures`, has changed since the day in its name.
"""

import csv
import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "results"
TOP = FOLDER.parents[1]
HEAD = """# Figures

Newest first; made by `python bench/results_table.py` from `index.tsv`. `older` means that the code that a file measures has changed since: the figures are of their day. A file without a mark measures torch, CUDA or a browser, or code that has not changed.

| day | file | host | command | told in | |
|---|---|---|---|---|---|
"""


def rows():
    with open(FOLDER / "index.tsv", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def day(row):
    return re.search(r"\d{4}-\d\d-\d\d", row["file"])[0]


def changed_since(row):
    """Whether the code of ROW has a change of a later day."""
    if not row["measures"]:
        return False
    words = ["git", "log", "-1", "--format=%cs", "--", *row["measures"].split()]
    last = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    return last.stdout.strip() > day(row)


def main():
    lines = []
    for row in sorted(rows(), key=lambda row: (day(row), row["file"]), reverse=True):
        told = ", ".join(f"[{Path(p).name}](../../{p})" for p in row["told in"].split())
        mark = "older" if changed_since(row) else ""
        lines.append(
            f"| {day(row)} | [{row['file']}]({row['file']}) | {row['host']} | "
            f"`{row['command']}` | {told} | {mark} |\n"
        )
    (FOLDER / "README.md").write_text(HEAD + "".join(lines))


if __name__ == "__main__":
    main()
