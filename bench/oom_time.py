"""How long a program waits where memory runs out: what is written before torch raises.

    memlab run --phantom=h100 --out FOLDER bench/oom_time.py [STEPS]

48 encoder layers train for STEPS (100), some 5,000 events each, then ask for more than the GPU
has.  Times are of the thread that failed: wall clock, and processor.
"""

import sys
import time

import torch
from torch import nn

from memlab import _core
from memlab._record import oom

PARTS = {"notes": (oom.Watch, "_note"), "report": (oom, "report_text")}


def timed(owner, name, times, label):
    """Adds the seconds of each call of OWNER's function NAME to TIMES."""
    function = getattr(owner, name)

    def run(*args, **kwargs):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            times[label] = time.perf_counter() - wall, time.process_time() - cpu

    setattr(owner, name, run)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    times, events = {}, {}
    for label, (owner, name) in PARTS.items():
        timed(owner, name, times, label)
    text = oom.report_text

    def count(recording, *rest):
        events["events"] = recording.counts(0)["events"]
        return text(recording, *rest)

    oom.report_text = count
    timed(oom.Watch, "happened", times, "all")
    net = nn.Sequential(
        *[nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(48)]
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        x = torch.zeros(4, 64, 256, device="cuda")
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    print(f"{events['events']:,} events, torch {torch.__version__}, memlab {_core.__name__}")
    for label, (wall, cpu) in times.items():
        print(f"  {label:8} {wall:6.2f} s, {cpu:5.2f} s of a processor")


if __name__ == "__main__":
    main()
