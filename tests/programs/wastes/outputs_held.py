"""The outputs of a step are held by their variables until the next step's are there."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8192)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(4):
        x = torch.zeros(2048, 256, device="cuda")
        optimizer.zero_grad()
        outputs = model(x)  # waste
        loss = outputs.relu().sum()
        if mended:
            del outputs
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
