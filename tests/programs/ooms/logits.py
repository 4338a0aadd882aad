"""A small model with a large vocabulary: the loss asks for most."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50257, 768)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(768, 50257, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=48)
batch = parser.parse_args().batch
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    tokens = torch.zeros(batch, 1024, dtype=torch.long, device="cuda")
    optimizer.zero_grad()
    logits = net(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
