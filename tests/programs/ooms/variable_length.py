"""Sequences of different lengths: a long one comes late."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
batch = parser.parse_args().batch
net = nn.Sequential(
    *[nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True) for _ in range(8)]
).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for length in (128, 256, 192, 320, 224, 1024, 128):
    x = torch.zeros(batch, length, 768, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
