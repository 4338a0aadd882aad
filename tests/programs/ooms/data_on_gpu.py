"""All data are on the GPU from the start."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=60000)
batch = parser.parse_args().batch
data = torch.zeros(500_000, 4096, device="cuda")
net = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(16)])
net = net.cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for i in range(3):
    x = data[i * batch : (i + 1) * batch]
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
