"""What the model returns is squared: the loss's backward pass takes as much as four layers."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=300000)
batch = parser.parse_args().batch
net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.zeros(batch, 4096, device="cuda")
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
