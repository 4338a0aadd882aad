"""Runs programs one after the other, as if each were alone, and keeps what each recorded.

Its arguments are the programs; the recording of each is beside it, with .mlab behind.
"""

import gc
import sys
from pathlib import Path

import torch

import memlab


def warm_up():
    """What a process has once, the first to need it would be told to have."""
    weight = torch.zeros(64, 64, device="cuda", requires_grad=True)
    (weight @ weight).sum().backward()


def record(path):
    gc.collect()
    torch.cuda.empty_cache()
    code = compile(path.read_text(), str(path), "exec")
    with memlab.MemorySnapshot(file=f"{path}.mlab"):
        exec(code, {"__name__": "__main__"})


warm_up()
for argument in sys.argv[1:]:
    record(Path(argument))
