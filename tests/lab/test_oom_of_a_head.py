"""A run that ends where the head asks for the logits: neither the trunk's modules nor the loss,
which was not reached, are hidden by the head, the model's largest block."""

import json

import pytest

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
            x = checkpoint(block, x, use_reentrant=False) if mended else block(x)
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
tokens = torch.zeros(4096, dtype=torch.long, device="cuda")
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
remedies = verdict["make_fit"]["remedies"] if failed else []
first, changes = verdict["findings"][0], [item["kind"] for item in verdict["changes"]]
print(json.dumps([failed, first.get("module"), remedies, first.get("stage"), changes]))
"""


@pytest.mark.cuda
def test_checkpointing_and_a_chunked_loss_are_among_the_remedies(phantom_run):
    def run(how):
        return json.loads(phantom_run(PROGRAM, 700 << 20, how).stdout)

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
    done = phantom_run(PROGRAM, 1700 << 20, "as it is")
    failed, _, _, stage, changes = json.loads(done.stdout)
    assert failed and stage == "backward"
    assert "checkpoint" in changes and "graph_unused" not in changes
