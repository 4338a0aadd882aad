"""Parameters that no optimizer has still get gradients."""

import sys

import torch
from torch import nn


def main(mended):
    backbone = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    adapter = nn.Linear(1024, 1024).cuda()
    backbone.requires_grad_(not mended)
    optimizer = torch.optim.Adam(adapter.parameters(), foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        backbone(adapter(torch.zeros(64, 1024, device="cuda"))).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
