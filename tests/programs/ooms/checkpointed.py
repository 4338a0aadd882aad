"""Each layer is computed again in the backward pass."""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, device="cuda")
            for _ in range(24)
        )

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=480)
batch = parser.parse_args().batch
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    x = torch.zeros(batch, 512, 1024, device="cuda")
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
