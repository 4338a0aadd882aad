"""Each layer saves what it computes for the backward pass."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(8))
        self.checkpointed = checkpointed

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return x


def main(mended):
    model = Model(mended).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(4096, 256, device="cuda")).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
