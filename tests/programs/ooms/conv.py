"""A net of convolutions."""

import argparse

import torch
from torch import nn


def block(before, after, stride):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    )


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1400)
batch = parser.parse_args().batch
sizes = [(3, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
net = nn.Sequential(*[block(*size) for size in sizes]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    x = torch.zeros(batch, 3, 128, 128, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
