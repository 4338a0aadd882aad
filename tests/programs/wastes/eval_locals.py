"""An evaluation runs without torch.no_grad(); the forward pass holds results in variables of
its own, and needs some again later."""

import contextlib
import sys

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 1024)
        self.down = nn.Linear(1024, 512)

    def forward(self, x):
        wide = self.up(x)
        active = torch.relu(wide)
        return self.down(active).tanh()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(Block() for _ in range(3))
        self.up = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for block in self.up:
            x = block(x + skips.pop())
        return x


def main(mended):
    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(512, 512, device="cuda")).sum().backward()
        optimizer.step()
        with torch.no_grad() if mended else contextlib.nullcontext():
            x = torch.zeros(4096, 512, device="cuda")
            score = model(x).sum()  # waste
            score.item()
        del x, score


if __name__ == "__main__":
    main("--mended" in sys.argv)
