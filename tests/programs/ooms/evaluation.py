"""Training fits; an evaluation with eight times its batch, and a graph, does not."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=13000)
batch = parser.parse_args().batch
net = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(12)])
net = net.cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    x = torch.zeros(batch, 4096, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
optimizer.zero_grad()
net(torch.zeros(8 * batch, 4096, device="cuda"))
