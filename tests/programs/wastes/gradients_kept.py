"""Gradients are overwritten with zeros, so that they are there all through the next
forward pass."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.zeros(1024, 1024, device="cuda")
    for _ in range(3):
        optimizer.zero_grad(set_to_none=mended)
        model(x).relu().sum().backward()  # waste
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
