"""Twelve encoder layers: memory ends in the forward of one of the last."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda")
            for _ in range(12)
        )
        self.head = nn.Linear(1024, 10)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=72)
batch = parser.parse_args().batch
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    x = torch.zeros(batch, 512, 1024, device="cuda")
    y = torch.zeros(batch, dtype=torch.long, device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
