"""Gradients are freed after the forward pass, not before it: they are there beside all of
its activations."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    x = torch.zeros(1024, 1024, device="cuda")
    for _ in range(3):
        if mended:
            optimizer.zero_grad()
        loss = model(x).relu().sum()
        optimizer.zero_grad()  # waste
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
