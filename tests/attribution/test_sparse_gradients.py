"""Sparse gradients: what they consist of is the parameter's gradient, which an optimizer
reads."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

PROGRAM = """
import json, torch, memlab
from torch import nn
with memlab.MemorySnapshot() as snapshot:
    table = nn.Embedding(100_000, 64, sparse=True).cuda()
    head = nn.Linear(64, 16).cuda()
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    for _ in range(3):
        ids = torch.zeros(65_536, dtype=torch.int64, device="cuda")
        loss = head(table(ids)).tanh().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
data = snapshot.data()
kinds = [item["kind"] for item in memlab.explain(data)["devices"][0]["advice"]]
values, indices = table.weight.grad._values(), table.weight.grad._indices()
at = data.peak(0, event=data.counts(0)["events"] - 1)
end = at["by_category"]["gradient"]
print(json.dumps([end, values.nbytes + indices.nbytes, head.weight.nbytes, kinds]))
"""


@pytest.mark.cuda
def test_values_and_indices_are_the_gradient(phantom_run):
    # A workspace that each product makes has the peak where the gradient is not yet there.
    said = phantom_run(PROGRAM, env=KEEPS_WORKSPACES).stdout
    end, sparse, dense, kinds = json.loads(said)
    assert sparse == 65_536 * 64 * 4 + 65_536 * 8
    # Beside them the head's weight and bias, in blocks of 512 bytes each.
    assert end == sparse + dense + 512
    assert "frozen_gradients" not in kinds and "gradients_late" in kinds
