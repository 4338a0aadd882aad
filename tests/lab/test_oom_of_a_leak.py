"""A run that a leak ends: a smaller batch would only put it off, and what fits is the program
that keeps nothing from step to step."""

import json

import pytest

# Arguments: what is kept of each step, and "mended": nothing.  It prints what the verdict says
# of fitting, and the most that was reserved.
PROGRAM = """
import json
import sys

import torch
from torch import nn

import memlab

kept, mended = sys.argv[1], sys.argv[2] == "mended"
model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
keeps = []

def step():
    output = model(torch.zeros(2048, 1024, device="cuda"))
    loss = output.square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=kept == "graphs" and not mended)
    optimizer.step()
    keeps.append(loss.item() if mended else loss if kept == "graphs" else output.detach())

with memlab.MemorySnapshot() as snapshot:
    try:
        for _ in range(12 if mended else 200):
            step()
        failed = False
    except torch.OutOfMemoryError:
        failed = True
verdict = snapshot.data().verdict(0, trials=True)
print(json.dumps([failed, verdict["make_fit"], torch.cuda.max_memory_reserved()]))
"""


@pytest.mark.cuda
@pytest.mark.parametrize("kept", ["outputs", "graphs"])
def test_a_leak_is_not_told_as_a_batch_that_does_not_fit(kept, phantom_run):
    def run(*arguments):
        memory = {"MEMLAB_PHANTOM_MEMORY": str(2 << 30)}
        return json.loads(phantom_run(PROGRAM, *arguments, env=memory).stdout)

    failed, fit, _ = run(kept, "as it is")
    assert failed
    assert "A smaller batch only puts it off" in fit["batch_text"]
    assert [r["kind"] for r in fit["remedies"] if r["chosen"]] == ["nothing_kept"]
    [remedy] = [r for r in fit["remedies"] if r["kind"] == "nothing_kept"]
    assert remedy["fits"]
    failed, _, reserved = run(kept, "mended")
    assert not failed
    # The rest of the step that failed is an estimate.
    assert remedy["needs_bytes"] == pytest.approx(reserved, rel=0.1)
