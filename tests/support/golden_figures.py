"""What a recording says in a few figures, as tests/data/golden/figures.json keeps them.

    golden_figures.py FILE.gz...

adds the figures of files in tests/data/, and leaves those that are there."""

import collections
import gzip
import json
import pickle
import sys
import tempfile
from pathlib import Path

from memlab._files.load import read_recording

DATA = Path(__file__).parents[1] / "data"
LINES = 3


def counted(items):
    return dict(sorted(collections.Counter(items).items()))


def nonzero(sums):
    return {name: size for name, size in sums.items() if size}


def line_of(line):
    """Files by their own name: the folders are where a program happened to lie."""
    return [
        line["file"].rpartition("/")[2],
        line["line"],
        line["function"],
        line["bytes"],
        line["phase"],
        line["how"],
        line["reason"],
    ]


def device(recording, number, plain):
    peak = recording.peak(number)
    known = plain["memlab"]["devices"][number]
    tags = known["tags"]
    blocks = [
        block
        for segment in plain["segments"]
        if segment["device"] == number
        for block in segment["blocks"]
    ]
    events = plain["device_traces"][number]
    forwards = counted(e["forward_frames"][-1] for e in events if "forward_frames" in e)
    return {
        **({"forwards": forwards} if forwards else {}),
        "actions": counted(event["action"] for event in events),
        "flags": counted(known.get("flags", "")),
        "blocks": counted(block["state"] for block in blocks),
        "block_bytes": sum(block["size"] for block in blocks),
        "tags": counted(
            f"{category} {module}.{name}"
            for category, module, name in zip(
                tags["category"], tags.get("module", tags["name"]), tags["name"],
                strict=True,
            )
        ),  # fmt: skip
        "uses": len(known.get("uses", {}).get("addr", ())),
        "unused": sum(known.get("unused", ())),
        "peak": {k: v for k, v in peak["peak"].items() if k != "time_us"},
        "by_category": nonzero(peak["by_category"]),
        "by_phase": nonzero(peak["by_phase"]),
        "by_how": nonzero(peak["by_how"]),
        "unknown_because": peak["unknown_because"],
        "by_module": [[m["module"], m["reason"], m["bytes"]] for m in peak["by_module"]],
        "by_line": [line_of(line) for line in peak["by_line"][:LINES]],
        "step": peak["step"],
    }


def of(recording, folder):
    path = Path(folder) / "figures.pickle"
    recording.write_pickle(path, True)
    plain = pickle.loads(path.read_bytes())
    return {
        "source": recording.source,
        "settings": sorted(plain.get("allocator_settings", ())),
        "annotations": len(plain.get("external_annotations", ())),
        "notes": [[n["kind"], n["name"], n["device"], n["rank"]] for n in recording.notes()],
        "ranks": [
            [r["rank"], r["world_size"], r["state"], r["clock"]["method"]]
            for r in recording.ranks()
        ],
        "code_lines": len(recording.code_lines()),
        "unread": recording.unread,
        "devices": [
            device(recording, number, plain)
            for number in range(recording.device_count)
            if plain["device_traces"][number]
            or recording.peak(number)["peak"]["event"]
            or any(segment["device"] == number for segment in plain["segments"])
        ],
    }  # fmt: skip


def main(names):
    kept = DATA / "golden" / "figures.json"
    figures = json.loads(kept.read_text()) if kept.exists() else {}
    for name in names:
        path = Path(name).resolve()
        key = path.relative_to(DATA.resolve()).as_posix()
        if key in figures:
            continue
        with tempfile.TemporaryDirectory() as folder:
            unpacked = Path(folder) / path.name.removesuffix(".gz")
            unpacked.write_bytes(gzip.decompress(path.read_bytes()))
            figures[key] = of(read_recording(unpacked, quiet=True), folder)
    lines = (f"{json.dumps(k)}: {json.dumps(figures[k])}" for k in sorted(figures))
    kept.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
