"""Four batches to a step; the optimizer's state comes after the fourth."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=72000)
batch = parser.parse_args().batch
net = nn.Sequential(
    *[nn.Sequential(nn.Linear(4096, 4096, device="cuda"), nn.ReLU()) for _ in range(16)]
)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    for _ in range(4):
        x = torch.zeros(batch, 4096, device="cuda")
        (net(x).mean() / 4).backward()
    optimizer.step()
