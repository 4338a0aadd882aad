"""The losses of four micro-batches are summed, and one backward pass runs all their graphs."""

import sys

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main(mended):
    model = nn.Sequential(*(Layer() for _ in range(6)), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        total = 0
        for _ in range(4):
            x = torch.zeros(2048, 256).cuda()
            loss = model(x).square().mean() / 4
            if mended:
                loss.backward()
            else:
                total = total + loss
        if not mended:
            total.backward()  # waste
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
