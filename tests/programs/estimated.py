"""Trains a small net under memlab's recorder and torch's at once.

usage: estimated.py encoder|convolutions|late KNOWN TORCH: the two pickles to write
"""

import sys

import torch
from torch import nn

import memlab


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(8000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(256, 8000)

    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 256, 3), nn.BatchNorm2d(256), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(256, 1000)

    def forward(self, images):
        return self.head(self.body(images).mean((2, 3)))


def train_encoder(after_step):
    model = Encoder().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        tokens = torch.randint(8000, (8, 128)).to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(tokens)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())
        loss.backward()
        if step % 2:
            optimizer.step()
            after_step()
            optimizer.zero_grad()
    return model, optimizer


def train_convolutions(after_step):
    model = Convolutions().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        images = torch.randn(16, 3, 48, 48, device="cuda")
        model(images).square().mean().backward()
        optimizer.step()
        after_step()
    return model, optimizer


def main(name, known_path, torch_path):
    known = memlab.MemorySnapshot(max_entries=1_000_000, source="cuda")
    started = []

    def start():
        if not started:
            started.append(True)
            known.start()
            torch.cuda.memory._record_memory_history(
                max_entries=1_000_000, stacks="python"
            )

    torch.cuda.init()
    if name != "late":
        start()
    train = train_convolutions if name == "convolutions" else train_encoder
    kept = train(start)
    torch.cuda.memory._dump_snapshot(torch_path)
    torch.cuda.memory._record_memory_history(None)
    known.stop()
    known.save(known_path)
    del kept


main(*sys.argv[1:])
