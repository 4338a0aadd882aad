"""cuBLAS's workspaces: advised where they are most of the peak, at what a run saves."""

import json

import pytest
from cuda_here import KEEPS_WORKSPACES

TRAINS = """
import json, sys, torch, memlab
from torch import nn
wide = int(sys.argv[1])
with memlab.MemorySnapshot() as snapshot:
    model = nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(64, wide, device="cuda")).sum().backward()
        optimizer.step()
stats = torch.cuda.memory_stats()
(device,) = memlab.explain(snapshot.data())["devices"]
found = [item for item in device["advice"] if item["kind"] == "workspaces"]
peaks = {name: stats[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved")}
print(json.dumps([found, peaks]))
"""


@pytest.mark.cuda
def test_a_small_net(phantom_run):
    found, before = json.loads(phantom_run(TRAINS, "256", env=KEEPS_WORKSPACES).stdout)
    (advice,) = found
    # A workspace of the thread of the forward pass, one of the backward pass; and where torch
    # gives cuBLASLt its own, that one.
    assert advice["blocks"] in (2, 3) and advice["bytes"] > before["allocated"] / 2
    variables = {"CUBLAS_WORKSPACE_CONFIG": advice["conf"], **KEEPS_WORKSPACES}
    again, after = json.loads(phantom_run(TRAINS, "256", env=variables).stdout)
    assert again == []
    for name in before:
        saved = before[name] - after[name]
        assert advice[f"{name}_saving_bytes"] == pytest.approx(saved, rel=0.05)
        assert saved > before[name] / 2


@pytest.mark.cuda
def test_a_net_that_is_larger_than_they_are(phantom_run):
    found, _ = json.loads(phantom_run(TRAINS, "4096", env=KEEPS_WORKSPACES).stdout)
    assert found == []
