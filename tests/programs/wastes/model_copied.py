"""A copy of the model, for a moving average, stays on the GPU."""

import copy
import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    average = copy.deepcopy(model.cpu() if mended else model)  # waste
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(256, 1024, device="cuda")).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new.to(kept.device), 0.01)


if __name__ == "__main__":
    main("--mended" in sys.argv)
