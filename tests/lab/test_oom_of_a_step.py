"""A run that the optimizer's step ends: activations are gone by then, so what saves them is no
remedy.  What is named as one is applied, and the program runs."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

# Arguments: the batch, the bytes that the process may take, and the change that is made.  It
# prints whether it ran out, in which stage, the advice on that, and what makes it fit alone.
PROGRAM = """
import json
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memlab

batch, memory, change = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.cuda.set_per_process_memory_fraction(memory / torch.cuda.mem_get_info()[1])

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(1024, 4096), nn.Linear(4096, 1024)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(8))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if change == "checkpoint" else block(x)
        return x

model = Net().cuda()
kind = torch.optim.SGD if "sgd" in change else torch.optim.AdamW
decay = 0.1 if "decay" in change else 0
optimizer = kind(model.parameters(), weight_decay=decay, fused="fused" in change or None)
with memlab.MemorySnapshot() as snapshot:
    try:
        for _ in range(3):
            model(torch.zeros(batch, 1024, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        failed = False
    except torch.OutOfMemoryError:
        failed = True
verdict = snapshot.data().verdict(0, trials=True)
told = [item["kind"] for item in verdict["changes"]]
stage = verdict["findings"][0].get("stage")
remedies = verdict["make_fit"]["remedies"] if failed else []
fitting = {item["kind"]: item["text"] for item in remedies if item["fits"]}
print(json.dumps([failed, stage, told, fitting]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize(
    "batch, told, mends",
    [
        # Before its state is there: no change to its temporaries is enough.
        (1536, [], "sgd"),
        # Where its temporaries are too much.
        (512, ["optimizer_temporaries"], "fused"),
    ],
)
def test_only_what_helps_the_step_is_named(batch, told, mends, phantom_run):
    def run(change):
        done = phantom_run(PROGRAM, batch, 1200 << 20, change, env=KEEPS_WORKSPACES)
        return json.loads(done.stdout)

    failed, stage, named, fitting = run("none")
    assert failed and stage == "optimizer"
    assert named == told
    assert "optimizer_sgd" in fitting and "checkpoint" not in fitting
    assert run("checkpoint")[0]
    assert not run(mends)[0]


@pytest.mark.cuda
def test_sgd_is_named_with_what_makes_no_temporaries(phantom_run):
    """With weight decay it makes a temporary of each parameter, unless it is fused."""

    def run(change, memory):
        done = phantom_run(PROGRAM, 512, memory << 20, change, env=KEEPS_WORKSPACES)
        return json.loads(done.stdout)

    assert "fused=True" in run("none", 1200)[3]["optimizer_sgd"]
    assert run("sgd and decay", 800)[0]
    assert not run("fused sgd and decay", 800)[0]
