"""A model in autocast's bfloat16, with a head of a vocabulary."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32000, 1024)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(16)
        )
        self.head = nn.Linear(1024, 32000, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=96)
batch = parser.parse_args().batch
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    tokens = torch.zeros(batch, 512, dtype=torch.long, device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        logits = net(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
