"""A run that ends where the head asks for the logits: neither the trunk's modules nor the loss,
which was not reached, are hidden by the head, the model's largest block."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

# Arguments: the bytes that the process may take, and whether it is mended.  It prints whether it
# ran out, the module that asked, the verdict's remedies, where it ran out, and the changes.
PROGRAM = """
import json
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import memlab

memory, mended = int(sys.argv[1]), sys.argv[2] == "mended"
rows = int(sys.argv[3])
torch.cuda.set_per_process_memory_fraction(memory / torch.cuda.mem_get_info()[1])

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32000, 256)
        self.blocks = nn.ModuleList(Block() for _ in range(8))
        self.head = nn.Linear(256, 32000)

    def trunk(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            again = sys.argv[2] != "as it is"
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x

    def forward(self, tokens):
        return self.head(self.trunk(tokens))

    def part(self, x, tokens):
        return functional.cross_entropy(self.head(x), tokens) / 8

    def pass_in_parts(self, tokens):
        parts = zip(self.trunk(tokens).chunk(8), tokens.chunk(8), strict=True)
        sum(checkpoint(self.part, *part, use_reentrant=False) for part in parts).backward()

model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.zeros(rows, dtype=torch.long, device="cuda")
with memlab.MemorySnapshot(on_oom="oom") as snapshot:
    try:
        for _ in range(2):
            if mended:
                model.pass_in_parts(tokens)
            else:
                functional.cross_entropy(model(tokens), tokens).backward()
            optimizer.step()
            optimizer.zero_grad()
        failed = False
    except torch.OutOfMemoryError:
        failed = True
verdict = snapshot.data().verdict(0, trials=True)
fit = verdict["make_fit"] if failed else {}
remedies = fit.pop("remedies", [])
first, changes = verdict["findings"][0], [item["kind"] for item in verdict["changes"]]
stage, peak = first.get("stage"), torch.cuda.max_memory_reserved()
print(json.dumps([failed, first.get("module"), remedies, stage, changes, fit, peak]))
"""


@pytest.mark.cuda
def test_checkpointing_and_a_chunked_loss_are_among_the_remedies(phantom_run):
    def run(how):
        return json.loads(phantom_run(PROGRAM, 700 << 20, how, 4096).stdout)

    failed, module, remedies, *_ = run("as it is")
    assert (failed, module) == (True, "head")
    found = {item["kind"]: item for item in remedies}
    assert found["checkpoint"]["module"] == "blocks.*" and found["checkpoint"]["count"] == 8
    assert found["loss_chunked"]["saving_bytes"] > 500 << 20
    assert sum(item["chosen"] for item in remedies) > 1
    assert not run("mended")[0]


@pytest.mark.cuda
def test_the_graph_of_a_pass_that_failed_at_once_is_not_held_in_vain(phantom_run):
    """There is room for the logits and their log-softmax, 500 MiB each, and for no gradient."""
    done = phantom_run(PROGRAM, 1700 << 20, "as it is", 4096)
    failed, _, _, stage, changes, *_ = json.loads(done.stdout)
    assert failed and stage == "backward"
    assert "checkpoint" in changes and "graph_unused" not in changes


@pytest.mark.cuda
def test_what_is_needed_is_what_a_run_with_enough_memory_takes(phantom_run):
    """The loss alone has the logits, so that its backward pass need not hold them; the thread that
    runs this pass takes a workspace of its own."""

    def run(memory, how, rows=4096):
        done = phantom_run(PROGRAM, memory << 20, how, rows, env=KEEPS_WORKSPACES)
        return json.loads(done.stdout)

    _, _, remedies, _, _, fit, _ = run(700, "as it is")
    *_, as_it_is = run(50_000, "as it is")
    assert fit["needs_least_bytes"] == pytest.approx(as_it_is, rel=0.03)
    assert fit["needs_most_bytes"] == pytest.approx(as_it_is, rel=0.03)
    *_, again = run(50_000, "checkpoint")
    [needs] = [item["needs_bytes"] for item in remedies if item["kind"] == "checkpoint"]
    assert needs == pytest.approx(again, rel=0.03)
    rows = int(4096 * fit["batch_factor"])
    assert not run(700, "as it is", rows)[0] and run(700, "as it is", rows * 5 // 4)[0]
