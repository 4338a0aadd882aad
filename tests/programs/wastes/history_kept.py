"""Every step's output goes to a list, detached, but on the GPU."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Linear(512, 2048).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    history = []
    for _ in range(6):
        optimizer.zero_grad()
        output = model(torch.zeros(1024, 512, device="cuda"))
        output.sum().backward()
        optimizer.step()
        kept = output.detach() * 0.5  # waste
        history.append(kept.cpu() if mended else kept)
        del output, kept


if __name__ == "__main__":
    main("--mended" in sys.argv)
