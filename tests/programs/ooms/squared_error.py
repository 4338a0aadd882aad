"""The mean squared error of what the model returns."""

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
    nn.functional.mse_loss(net(x), x).backward()
    optimizer.step()
