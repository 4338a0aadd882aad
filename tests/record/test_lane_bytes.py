"""What an event takes in memory, with real training through torch's CUDA allocator."""

import json

import pytest

pytestmark = pytest.mark.cuda

TRAINING = """
import json
import torch
import memlab

def block(width):
    return torch.nn.Sequential(
        torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
        torch.nn.Linear(4 * width, width), torch.nn.Dropout(0.1))

def train():
    net = torch.nn.Sequential(*(block(256) for _ in range(6))).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(40):
        net(torch.zeros(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

counts = []
for entries in (1_000_000, 4_000):
    with memlab.MemorySnapshot(max_entries=entries, stacks="python") as snapshot:
        train()
        stats = memlab.stats(0)
        counts.append({**stats, **snapshot.data().counts(0)})
print(json.dumps(counts))
"""


def test_an_event_with_its_stack_takes_at_most_16_bytes(phantom_run):
    everything, newest = json.loads(phantom_run(TRAINING).stdout)
    assert everything["lane_events"] >= 10_000
    assert everything["lane_bytes"] <= 16 * everything["lane_events"]
    # Memory follows what is kept: the chunk whose oldest events are no longer wanted is
    # all that there is too much.
    assert newest["events"] == 4_000
    assert newest["overwritten_events"] > 4_000
    assert newest["lane_bytes"] <= 16 * 4_000 + 2 * (16 << 10)
