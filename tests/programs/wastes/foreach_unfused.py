"""RMSprop works on all parameters at once, and makes temporaries of each; it has no fused form."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), foreach=not mended)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(64, 1024, device="cuda")).sum().backward()
        optimizer.step()  # waste


if __name__ == "__main__":
    main("--mended" in sys.argv)
