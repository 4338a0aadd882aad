"""Checkpointing is advised once, with its places; the promise is what a run saves, with
results that statistics lie behind, and weights that autocast keeps."""

import json

import pytest

from memlab._report import advice_words

TRAINS = """
import contextlib, json, sys, torch, memlab
from torch import nn
from torch.utils.checkpoint import checkpoint
kind, places = sys.argv[1], sys.argv[2:]

class Normed(nn.Module):
    "Its result comes before the statistics of a normalization."
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(64, 64, 3, padding=1) for _ in "ab")
        self.norm1, self.norm2 = (nn.BatchNorm2d(64) for _ in "ab")
    def forward(self, x):
        return torch.relu_(self.norm2(self.conv2(self.norm1(self.conv1(x)).relu_())))

class Wide(nn.Module):
    "Its weights are cast to 16 bits."
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.up, self.down = nn.Linear(1024, 2048), nn.Linear(2048, 1024)
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.first, self.then = (nn.ModuleList(block() for _ in range(3)) for _ in "ab")
    def forward(self, x):
        for name in ("first", "then"):
            for layer in getattr(self, name):
                if name in places:
                    x = checkpoint(layer, x, use_reentrant=False)
                else:
                    x = layer(x)
        # So that the peak is behind the calls, of which what is inside is not foreseen.
        return x.exp().exp().exp()

if kind == "normed":
    block, shape, cast = Normed, (16, 64, 64, 64), contextlib.nullcontext
else:
    block, shape = Wide, (4096, 1024)
    cast = lambda: torch.autocast("cuda", torch.bfloat16)
with memlab.MemorySnapshot() as snapshot:
    model = Net(block).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        with cast():
            loss = model(torch.zeros(shape, device="cuda", requires_grad=True)).sum()
        loss.backward()
        optimizer.step()
peak = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
(device,) = memlab.explain(snapshot.data())["devices"]
print(json.dumps([[i for i in device["advice"] if i["kind"] == "checkpoint"], peak]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["normed", "wide"])
def test_once_with_what_it_saves(phantom_run, kind):
    found, before = json.loads(phantom_run(TRAINS, kind).stdout)
    (advice,) = found
    assert sorted(advice["module"].split(", ")) == ["first.*", "then.*"]
    assert advice["count"] == 6
    # What runs twice a step updates its statistics twice, and the text says so.
    assert advice["batch_norm"] == (kind == "normed")
    said = advice_words.WORDS["checkpoint"](advice)[1]
    assert ("running statistics twice a step" in said) == advice["batch_norm"]
    again, after = json.loads(phantom_run(TRAINS, kind, "first", "then").stdout)
    assert again == []
    assert advice["allocated_saving_bytes"] == pytest.approx(before - after, rel=0.05)
