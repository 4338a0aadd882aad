"""The whole data set lies on the GPU, of which each step takes a few rows."""

import sys

import torch
from torch import nn


def main(mended):
    data = torch.zeros(65536, 512)
    if not mended:
        data = data.cuda()  # waste
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in range(4):
        rows = torch.arange(step * 256, (step + 1) * 256)
        optimizer.zero_grad()
        model(data[rows.to(data.device)].cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
