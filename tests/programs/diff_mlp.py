"""A network of two blocks, trained and evaluated.  Of its tensors, those of 2 MiB and
above are whole MiB of even number, so that the allocator leaves no slack."""

import torch
import torch.nn.functional as F
from torch import nn

import memlab

BATCH = 512
WIDTH = 1024
STEPS = 3


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width, bias=False)
        self.down = nn.Linear(width, width, bias=False)

    def forward(self, x):
        h = self.up(x)
        h = torch.tanh(h)
        h = self.down(h)
        return x + h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block(WIDTH)
        self.second = Block(WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return self.head(x)


def train_step(net, optimizer, x, y):
    out = net(x)
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def evaluate(net, x):
    with torch.no_grad():
        return net(x).sum()


def main():
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        y = torch.randn(BATCH, WIDTH, device="cuda")
        losses.append(train_step(net, optimizer, x, y))
        del x, y
    with memlab.phase("evaluate"):
        x = torch.randn(BATCH, WIDTH, device="cuda")
        evaluate(net, x)


main()
