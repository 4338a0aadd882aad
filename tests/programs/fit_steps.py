"""Trains for ever, or fails as asked; its memory can be worked out by hand.

A weight of 64 MiB, of which Adam keeps two more; a step needs BATCH MiB, and its gradient.
"""

import os
import sys

import torch

MIB = 1 << 20
how = sys.argv[1] if len(sys.argv) > 1 else "train"
batch = int(os.environ.get("BATCH", "100"))


def step(weight, optimizer):
    inputs = torch.empty(batch * MIB // 4, device="cuda")
    (weight * 1.0).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    del inputs


def main():
    print("training")
    if how == "fail":
        raise ValueError("a fault of its own")
    weight = torch.nn.Parameter(torch.empty(16 * MIB, device="cuda"))
    optimizer = torch.optim.Adam([weight], foreach=False)
    for number in range(1_000_000):
        step(weight, optimizer)
        if how == "end" and number == 1:
            return
        if how == "fail_late" and number == 1:
            print(weight.mean().item())
            raise ValueError("a fault of its own")


main()
