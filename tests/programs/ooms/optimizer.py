"""Adam's state does not fit beside parameters and gradients: no batch helps."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
batch = parser.parse_args().batch
net = nn.Sequential(*[nn.Linear(8192, 8192, device="cuda") for _ in range(28)])
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    x = torch.zeros(batch, 8192, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
