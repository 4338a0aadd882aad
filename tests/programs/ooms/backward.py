"""Wide layers: their gradients are too much, in the first backward pass."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=47000)
batch = parser.parse_args().batch
net = nn.Sequential(*[nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(12)])
net = net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.zeros(batch, 8192, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
