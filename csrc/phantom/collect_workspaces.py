"""Collects what convolutions took on a GPU into workspaces.def.

    python collect_workspaces.py FILE.jsonl.gz... > workspaces.def

Each FILE is what bench/measure_cudnn.py wrote.  A shape counts where it is undilated and
its planes and filters are cubes, as nearly all are; calls without TF32 or with
cudnn.benchmark do not.

The result is checked in: building memlab reads no measurement.
"""

import gzip
import json
import sys

DIRECTIONS = ("forward", "input_gradient", "filter_gradient")
DTYPES = ("float32", "float16", "bfloat16")
LAYOUTS = ("contiguous", "channels_last")


def workspace(row):
    """The bytes that a call requested beyond its results."""
    results = list(row["result_bytes"])
    bytes_beside = 0
    for asked in row["asked_bytes"]:
        if asked in results:
            results.remove(asked)
        elif asked > 0:
            bytes_beside += asked
    return bytes_beside


def collect(files):
    """The first lines of FILES, and {shape: {(direction, dtype, layout): bytes}}."""
    heads, shapes = [], {}
    for name in files:
        with gzip.open(name, "rt") as file:
            for row in map(json.loads, file):
                if "gpu" in row:
                    heads.append(row)
                if "x" not in row or not row["tf32"] or row["benchmark"] or row["error"]:
                    continue
                (batch, inputs, side, *_), (outputs, filter_inputs, width, *_) = (
                    row["x"],
                    row["w"],
                )
                if row["dilation"] != 1:
                    continue
                shape = (len(row["x"]) - 2, batch, inputs, side, outputs)
                shape += (filter_inputs, width, row["stride"], row["y"][2])
                kind = (row["direction"], row["dtype"], row["layout"])
                shapes.setdefault(shape, {})[kind] = workspace(row)
    return heads, shapes


def cells(kinds):
    """The bytes of one shape as text: "-" is not measured, "=" equals the previous one.
    """
    text, before = [], None
    for direction in DIRECTIONS:
        for layout in LAYOUTS:
            for dtype in DTYPES:
                taken = kinds.get((direction, dtype, layout))
                same = taken is not None and taken == before
                text.append("-" if taken is None else "=" if same else str(taken))
                before = taken
    return " ".join(text)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: collect_workspaces.py FILE.jsonl.gz... > workspaces.def")
    heads, shapes = collect(sys.argv[1:])
    measured = sorted({f"{h['gpu']}, torch {h['torch']}, cuDNN {h['cudnn']}" for h in heads})
    print("/* What convolutions took beside their results, in bytes.")
    for line in measured:
        print(f" * {line}.")
    print(" * Spatial dimensions, batch, input channels, side, output channels, input channels")
    print(" * of the filter, its side, stride, side of the output; then forward, gradient of")
    print(" * the input and of the filter, each contiguous and channels last, each in float32,")
    print(" * float16 and bfloat16; = is as before, - was not measured.")
    print(" * Made by collect_workspaces.py. */")
    for shape, kinds in sorted(shapes.items()):
        print(f'XX({", ".join(map(str, shape))}, "{cells(kinds)}")')


if __name__ == "__main__":
    main()
