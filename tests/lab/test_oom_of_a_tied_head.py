"""A run that ends before a head that has the embedding's weight: the batch that fits holds the
logits, of which no parameter of their own tells."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

# Arguments: the batch, and where the recording goes.  It prints what the verdict says of fitting.
PROGRAM = """
import json
import sys

import torch
from torch import nn
from torch.nn import functional

import memlab

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        scaled = (x.unflatten(-1, (16, 16)) * self.scale).flatten(-2)
        return x + self.down(functional.gelu(self.up(scaled)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30011, 256)
        self.blocks = nn.ModuleList(Block() for _ in range(16))
        self.head = nn.Linear(256, 30011, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

batch = int(sys.argv[1])
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
with memlab.MemorySnapshot(on_oom=sys.argv[2]) as snapshot:
    try:
        for _ in range(2):
            tokens = torch.zeros(batch, 64, dtype=torch.long, device="cuda")
            functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        fit = None
    except torch.OutOfMemoryError:
        verdict = snapshot.data().verdict(0, trials=True)
        fit = verdict["make_fit"] | {"module": verdict["findings"][0]["module"]}
print(json.dumps(fit))
"""


@pytest.mark.cuda
def test_the_batch_that_fits_holds_the_logits(phantom_run, tmp_path):
    def run(batch):
        memory = KEEPS_WORKSPACES | {"MEMLAB_PHANTOM_MEMORY": str(2 << 30)}
        done = phantom_run(PROGRAM, batch, str(tmp_path), env=memory)
        return json.loads(done.stdout.splitlines()[-1])

    fit = run(250)
    assert fit["module"].startswith("blocks.")
    batch = int(250 * fit["batch_factor"])
    assert run(batch) is None
    assert run(batch * 5 // 4) is not None
