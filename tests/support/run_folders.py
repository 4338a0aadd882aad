"""Programs that start processes under `memlab run`, and what stands in its folder."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MIB = 1 << 20

HEAD = """
import multiprocessing, os, signal, sys, time
import torch

def hold(mib, device=0):
    held = torch.empty(mib << 20, dtype=torch.uint8, device=device)
    print("HELD", mib, flush=True)
    return held
"""


def peaks(folder):
    """{number: MiB at the peak} of what was recorded in FOLDER, of which the visible files
    are all whole."""
    from memlab._files.load import read_recording

    found = {}
    for path in sorted(folder.glob("*.mlab")):
        recording = read_recording(path)
        peak = max(
            (recording.peak(i)["peak"]["allocated_bytes"]
             for i in range(recording.device_count)), default=0
        )
        found[int(re.fullmatch(r"rank(\d+)\.mlab", path.name)[1])] = peak // MIB
    return found


def names(folder):
    return {path.name for path in folder.iterdir()}


def results(*numbers):
    """The names of all files of processes with these NUMBERS that ended by themselves."""
    found = {".rank0.lock"}
    for n in numbers:
        report = f"report_rank{n}.txt" if n else "report.txt"
        found |= {f"rank{n}.mlab", f"rank{n}.pickle", f"rank{n}.html", report}
    return found
