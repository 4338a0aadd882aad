"""The losses of four slices of a batch are summed, and one backward pass runs all their graphs."""

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
        batch = torch.zeros(8192, 256, device="cuda")
        optimizer.zero_grad()
        losses = []
        for part in batch.chunk(4):
            loss = model(part).square().mean()
            if mended:
                (loss / 4).backward()
            else:
                losses.append(loss)
        if not mended:
            torch.stack(losses).mean().backward()  # waste
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
