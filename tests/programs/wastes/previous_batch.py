"""The variable of the last batch holds it while the next one is made and trained on."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    last = None
    for _ in range(4):
        x = torch.zeros(2048, 4096, device="cuda")  # waste
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        last = x.shape if mended else x
        del x
    return last


if __name__ == "__main__":
    main("--mended" in sys.argv)
