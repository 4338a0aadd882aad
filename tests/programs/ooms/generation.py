"""A cache of keys and values that grows token by token."""

import argparse

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(2048, 3 * 2048)
        self.out = nn.Linear(2048, 2048)
        self.cache = None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.cache is not None:
            k = torch.cat([self.cache[0], k], 1)
            v = torch.cat([self.cache[1], v], 1)
        self.cache = k, v
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=200)
batch = parser.parse_args().batch
net = nn.Sequential(*[Layer() for _ in range(16)]).cuda()


@torch.no_grad()
def generate():
    x = torch.zeros(batch, 512, 2048, device="cuda")
    for _ in range(64):
        x = net(x)[:, -8:]


generate()
