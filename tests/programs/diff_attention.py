"""A small transformer: attention by hand, its blocks in a list."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 4
LENGTH = 256
WIDTH = 512
HEADS = 8
WORDS = 2048
STEPS = 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def split(self, x):
        return x.view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = self.split(q), self.split(k), self.split(v)
        scores = q @ k.transpose(-1, -2)
        weights = scores.softmax(dim=-1)
        mixed = weights @ v
        mixed = mixed.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        return self.out(mixed)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(x)
        h = F.gelu(self.wide(x))
        return x + self.narrow(h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
        logits = model(tokens)
        loss = F.cross_entropy(logits.view(-1, WORDS), tokens.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
