"""The losses are kept with their graphs."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=20000)
batch = parser.parse_args().batch
net = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(8)])
net = net.cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses = []
for _ in range(200):
    x = torch.zeros(batch, 2048, device="cuda")
    optimizer.zero_grad()
    out = net(x)
    out.mean().backward()
    optimizer.step()
    losses.append(out)
