"""Losses of an evaluation go to a list with their graphs, and so do its inputs."""

import contextlib
import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.zeros(512, 512, device="cuda")).sum().backward()
        optimizer.step()
        x = torch.zeros(4096, 512, device="cuda")
        with torch.no_grad() if mended else contextlib.nullcontext():
            losses.append(model(x).square().mean())  # waste


if __name__ == "__main__":
    main("--mended" in sys.argv)
