"""The table of docs/LABORATORY.md: what `memlab fit` says, against an H200.

    python bench/fit_table.py --fit > bench/results/fit_phantom.jsonl
    python bench/fit_table.py bench/results/fit_phantom.jsonl bench/results/fit_h200_*.jsonl

The first asks memlab.fit of every program of fit_programs.py, some ten minutes on two
cores, under torch's default settings and with expandable segments; --only NAME... of these.
The second prints the table from the two, in Markdown.
"""

import argparse
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETTINGS = ("", "expandable_segments:True")
PEAKS = ("allocated", "reserved")


def fit(only):
    """Prints a line of JSON for each program and setting."""
    import memlab

    sys.path.insert(0, str(HERE))
    import fit_programs

    for conf in SETTINGS:
        for name in only or fit_programs.PROGRAMS:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf
            try:
                answer = memlab.fit(HERE / "fit_programs.py", [name])
            except memlab.Error as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            [device] = answer["devices"]
            keys = (*(f"{peak}_peak_bytes" for peak in PEAKS), "outside_bytes")
            line = {"name": name, "conf": conf, **{key: device[key] for key in keys}}
            line["reserved_peak_range_bytes"] = device["reserved_peak_range_bytes"]
            print(json.dumps(line), flush=True)


def read(paths):
    """The lines of PATHS by name and setting."""
    found = {}
    for path in paths:
        for text in Path(path).read_text().splitlines():
            line = json.loads(text)
            found[line["name"], line["conf"]] = line
    return found


def measured(line, peak):
    return line["stats"][f"{peak}_bytes.all.peak"]


def miss(said, real):
    """SAID against REAL in per cent; "0" is equal to the byte."""
    return "0" if said == real else f"{100 * (said - real) / real:+.2f} %"


def row(name, said, real):
    """A row of the table: figures under the default settings, then misses under both."""
    default = real[name, ""]
    cells = [name, gib(measured(default, "allocated")), gib(measured(default, "reserved"))]
    for conf in SETTINGS:
        if (name, conf) not in said or (name, conf) not in real:
            cells += ["", ""]
            continue
        mine, theirs = said[name, conf], real[name, conf]
        for peak in PEAKS:
            cells.append(miss(mine[f"{peak}_peak_bytes"], measured(theirs, peak)))
        low, high = mine["reserved_peak_range_bytes"]
        if not conf:
            reserved = measured(theirs, "reserved")
            spread = "" if low == high else f"{miss(low, reserved)} to {miss(high, reserved)}"
            cells.append(spread)
    return cells


def gib(count):
    return f"{count / 2**30:.2f}"


def within(said, real, names, conf, percent):
    """How many of NAMES reserve within so many PERCENT of the real."""
    count = 0
    for name in names:
        mine, theirs = said[name, conf], real[name, conf]
        reserved = measured(theirs, "reserved")
        count += abs(mine["reserved_peak_bytes"] - reserved) <= percent / 100 * reserved
    return count


def table(paths):
    """Prints the table of what memlab fit said, the first of PATHS, and the GPU's."""
    said, real = read(paths[:1]), read(paths[1:])
    names = [name for name, conf in said if conf == "" and (name, "") in real]
    heads = (
        "program", "allocated, GiB", "reserved, GiB", "allocated", "reserved",
        "reserved, by order", "allocated, exp.", "reserved, exp.",
    )  # fmt: skip
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads), "|", sep="")
    for name in names:
        print("|", " | ".join(row(name, said, real)), "|")
    print()
    for conf in SETTINGS:
        both = [n for n in names if (n, conf) in said and (n, conf) in real]
        parts = [
            f"{within(said, real, both, conf, percent)} within {percent} %"
            for percent in (0, 1, 3)
        ]
        print(f"{conf or 'default'}: {len(both)} programs, reserved {', '.join(parts)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fit", action="store_true", help="ask memlab fit")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of these")
    parser.add_argument("paths", nargs="*", help="what it said, and what GPUs took")
    options = parser.parse_args()
    if options.fit:
        fit(options.only)
    elif len(options.paths) > 1:
        table(options.paths)
    else:
        parser.error("--fit, or the files of both")


if __name__ == "__main__":
    main()
