"""How much of the peak the ten rows of modules have, of the programs of fit_programs.py.

    python bench/module_rows.py > bench/results/module_rows_phantom_torchX_DATE.txt
    python bench/module_rows.py --json NAME...          # one line of JSON a program
    python bench/module_rows.py --recordings DIR        # of DIR/NAME/rank0.mlab

Each is recorded by `memlab run` on the phantom device, half a minute each.  COVERED is the
share of the allocated bytes at the peak in rows other than the rest of all; MODULES how many
rows a table of each module has; LARGEST the largest row.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PHANTOM_GPU = "h100"


def record(name, folder):
    """The recording of the program NAME, in FOLDER."""
    out = Path(folder, name)
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "run", "--quiet", f"--phantom={PHANTOM_GPU}",
         "--out", out, HERE / "fit_programs.py", name],
        capture_output=True, text=True,
    )  # fmt: skip
    if not (out / "rank0.mlab").exists():
        sys.exit(f"{name} was not recorded:\n{done.stderr}")
    return out / "rank0.mlab"


def row(name, path):
    """What the rows of the recording at PATH have."""
    from memlab._files import load
    from memlab._report import modules

    answer = load.read_recording(path, quiet=True).peak(0)
    rows, whole = answer["module_rows"], answer["peak"]["allocated_bytes"]
    rest = sum(r["bytes"] for r in rows if not r["module"] and not r["reason"])
    return {
        "name": name,
        "peak_bytes": whole,
        "modules": len(answer["by_module"]),
        "rows": len(rows),
        "covered": 1 - rest / whole,
        "largest_share": rows[0]["bytes"] / whole,
        "largest": modules.name(rows[0]),
    }


def header():
    """Versions and date of a table."""
    import torch

    import memlab

    return (
        f"memlab {memlab.__version__}, torch {torch.__version__}, phantom {PHANTOM_GPU}, "
        f"{datetime.date.today()}\n"
        "Share of the allocated bytes at the peak in the ten rows of modules that memlab "
        "report shows,\nthe row of the rest left aside; bench/module_rows.py\n\n"
        f"{'program':24} {'modules':>7} {'rows':>4} {'covered':>8} {'largest':>8}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    import fit_programs

    if not options.json:
        print(header())
    for name in options.names or fit_programs.PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            path = options.recordings and options.recordings / name / "rank0.mlab"
            told = row(name, path or record(name, folder))
        if options.json:
            print(json.dumps(told), flush=True)
            continue
        print(
            f"{told['name']:24} {told['modules']:7} {told['rows']:4} "
            f"{100 * told['covered']:6.1f} % {100 * told['largest_share']:6.1f} %  "
            f"{told['largest']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
