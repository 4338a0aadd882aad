"""A small transformer, trained for three steps in each of some ways; prints what memlab
says of each as JSON, by name: {"peak", "explanation"}.
"""

import json
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memlab

TOKENS, WIDTH, LAYERS, WORDS = 128, 256, 4, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        x = x + (q @ k.transpose(-1, -2) / 16).softmax(-1) @ v
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.checkpointed = checkpointed

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def train(*, zeros=False, checkpointed=False, batch=16):
    torch.cuda.empty_cache()
    with memlab.MemorySnapshot() as snapshot:
        model = Model(checkpointed).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for _ in range(3):
            tokens = torch.zeros(batch, TOKENS, dtype=torch.int64, device="cuda")
            optimizer.zero_grad(set_to_none=not zeros)
            loss = nn.functional.cross_entropy(model(tokens).view(-1, WORDS), tokens.view(-1))
            loss.backward()
            optimizer.step()
    return snapshot.data()


def said(recording, memory=None):
    explained = memlab.explain(recording, memory)
    return {"peak": recording.peak(0)["whole_peak"], "explanation": explained["devices"][0]}


train()  # what libraries keep
runs = {
    "plain": train(),
    "zeros": train(zeros=True),
    "checkpointed": train(checkpointed=True),
    "twice": train(batch=32),
}
answers = {name: said(run) for name, run in runs.items()}
room = answers["twice"]["explanation"]["peak"]["reserved_bytes"]
answers["fit"] = said(runs["plain"], room)
json.dump(answers, sys.stdout)
