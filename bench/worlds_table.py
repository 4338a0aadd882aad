"""The table of worlds in docs/PHANTOM.md: several real GPUs, phantom ranks that talk to each
other, and what `memlab fit --world-size` says of each rank.

    python bench/measure_nccl.py --ranks 4 2 --gpus 4 --only world_ --out real.json
    memlab phantom --gpu h200 --devices 4 python bench/measure_nccl.py --limit 300 \\
        --ranks 4 2 --gpus 4 --only world_ --out phantom.json
    python bench/worlds_table.py --fit real.json > fit.jsonl
    python bench/worlds_table.py real.json phantom.json fit.jsonl

The first needs the GPUs, for some four minutes; the others need none, and half an hour on two
cores.  The last prints the table in Markdown, and what NCCL took between points.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path

import measure_nccl

MIB = 1 << 20
FIGURES = ("allocated_peak", "reserved_peak", "used")


def worlds(path):
    """Name to (kind, what the ranks told at their last point) of the file of measure_nccl.py."""
    content = Path(path).read_bytes()
    found = {}
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    for name, answer in json.loads(content).items():
        if name.startswith("world_") and not answer["errors"]:
            found[name] = sorted(answer["ranks"], key=lambda rank: rank["rank"])
    return found


def kind_of(name):
    """Kind and ranks of, say, "world_fsdp2 of 4"."""
    kind, size = name.removeprefix("world_").split(" of ")
    return kind, int(size)


def fit(path, only):
    """Prints a line of JSON for each world of the file PATH, on the GPU that it names; of the
    kinds ONLY, if there are any.  Ranks are alike but for the stages of a pipeline: of others
    the first and the last are asked for.
    """
    import memlab

    asked = set()
    for name, ranks in worlds(path).items():
        kind, size = kind_of(name)
        if only and kind not in only:
            continue
        program, argument, _ = measure_nccl.WORLDS[kind]
        # Planted rows of experts are those of fit's range.
        words = [argument] if program == "world" else []
        if (program, *words, size) in asked:
            continue
        asked.add((program, *words, size))
        try:
            answer = memlab.fit(
                measure_nccl.PROGRAMS / f"{program}.py",
                words,
                gpu=ranks[0]["gpu"],
                world_size=size,
                ranks=range(size) if kind.startswith("pp") else (0, size - 1),
            )
        except memlab.Error as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        line = {
            "program": program,
            "words": words,
            "size": size,
            "devices": {device["rank"]: answered(device) for device in answer["devices"]},
            "rows": {row["assumed"]: answered(row) for row in answer["world"]["rows"] or []},
        }
        print(json.dumps(line), flush=True)


def answered(item):
    return {
        "allocated_peak": item["allocated_peak_bytes"],
        "reserved_peak": item["reserved_peak_bytes"],
        "used": item["total_bytes"],
    }


def fitted(path):
    """(program, words, ranks) to the line of the file PATH."""
    lines = map(json.loads, Path(path).read_text().splitlines())
    return {(line["program"], *line["words"], line["size"]): line for line in lines}


def of_fit(lines, kind, size):
    """What fit said: (figures by rank, None), or (lowest, highest) where the rows of experts
    are not known; None: nothing.
    """
    program, argument, _ = measure_nccl.WORLDS[kind]
    line = lines.get((program, *([argument] if program == "world" else []), size))
    if line is None:
        return None
    if program == "world":
        return {int(rank): found for rank, found in line["devices"].items()}, None
    rows = line["rows"]
    if argument is None:
        return tuple(dict.fromkeys(range(size), rows[ends]) for ends in ("none", "all"))
    if argument == "all":
        return {**dict.fromkeys(range(size), rows["none"]), 0: rows["all"]}, None
    return dict.fromkeys(range(size), rows["even"]), None


def miss(said, real, figure):
    """The difference of the rank of SAID that differs most; 0: each is equal to the byte."""
    found = {rank: said[rank][figure] - real[rank][figure] for rank in said}
    rank, worst = max(found.items(), key=lambda item: abs(item[1]))
    if worst == 0:
        return "0"
    if figure == "used":
        return f"{100 * worst / real[rank][figure]:+.1f} %"
    count = sum(each != 0 for each in found.values())
    return f"{worst:+,} B" + (f" ({count} of {len(found)})" if count < len(found) else "")


def between(lowest, highest, real, figure):
    inside = sum(
        lowest[rank][figure] <= each[figure] <= highest[rank][figure]
        for rank, each in real.items()
    )
    return f"{inside} of {len(real)} in range"


def last(ranks):
    """The figures of each rank at its last point."""
    return {rank["rank"]: rank["points"][-1] for rank in ranks}


def row(name, real, phantom, lines):
    kind, size = kind_of(name)
    theirs = last(real[name])
    cells = [kind, str(size)]
    cells += [f"{max(each[figure] for each in theirs.values()) / MIB:,.0f}" for figure in FIGURES]
    said = last(phantom[name]) if name in phantom else None
    cells += [miss(said, theirs, figure) if said else "" for figure in FIGURES]
    found = of_fit(lines, kind, size)
    for figure in FIGURES:
        if found is None:
            cells.append("")
        elif found[1] is None:
            cells.append(miss(found[0], theirs, figure))
        else:
            cells.append(between(*found, theirs, figure))
    return cells


def table(real_path, phantom_path, fit_path):
    real, phantom, lines = worlds(real_path), worlds(phantom_path), fitted(fit_path)
    heads = [
        "world", "ranks", "allocated, MiB", "reserved, MiB", "device, MiB",
        *(f"{who}, {what}" for who in ("phantom", "fit") for what in ("allocated", "reserved", "device")),
    ]  # fmt: skip
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads), "|", sep="")
    for name in real:
        print("|", " | ".join(row(name, real, phantom, lines)), "|")
    print("\nOutside torch's allocator, MiB a rank, from point to point:\n")
    for name in real:
        for who, ranks in (("real", real[name]), ("phantom", phantom.get(name, ()))):
            for steps in sorted({outside(rank) for rank in ranks}):
                print(f"{name:22} {who:8} {steps}")


def outside(rank):
    before, parts = 0, []
    for point in rank["points"]:
        parts.append(f"{point['point']} {(point['outside'] - before) / MIB:+,.0f}")
        before = point["outside"]
    return ", ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fit", action="store_true", help="ask memlab fit")
    parser.add_argument("--only", nargs="+", default=[], metavar="KIND", help="of these")
    parser.add_argument("paths", nargs="+", help="what GPUs took, the phantom, and fit said")
    options = parser.parse_args()
    if options.fit:
        fit(options.paths[0], options.only)
    elif len(options.paths) == 3:
        table(*options.paths)
    else:
        parser.error("--fit and the file of the GPUs, or the files of all three")


if __name__ == "__main__":
    main()
