"""From torch 2.15 on cuBLAS and cuBLASLt get a workspace for each product."""

import json

import on_phantom
import pytest
from cuda_here import torch_since

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch_since(2, 15), reason="this torch keeps its workspaces"),
    on_phantom.needs_torch,
]

PROGRAM = """
import json, torch, memlab
layer = torch.nn.Linear(64, 32, bias=False).cuda()
with memlab.MemorySnapshot() as snapshot:
    layer(torch.ones(16, 64, device="cuda"))
print(json.dumps(snapshot.peak()))
"""
# Of an H100 or later, of an A100, and cuBLASLt's.
BYTES, ODD, LIGHT = 33_554_432, 8_519_680, 1_048_576


def test_it_is_a_workspace_and_of_the_module_that_multiplies(phantom_run):
    peak = json.loads(phantom_run(PROGRAM).stdout)
    assert peak["by_category"]["workspace"] == BYTES
    # What the product returned, which nobody keeps.
    assert peak["by_category"]["temporary"] == 16 * 32 * 4
    module = {row["module"]: row["bytes"] for row in peak["by_module"]}
    assert module["Linear"] >= BYTES


INSTANTS = """
import json, torch, memlab
torch.cuda.init()
layer = torch.nn.Linear(64, 32).cuda()
x = torch.ones(16, 64, device="cuda")
weight = torch.ones(64, 32, device="cuda", requires_grad=True)
out = torch.zeros(16, 32, device="cuda")

def trained():
    for _ in range(2):
        layer(x).sum().backward()

def in_place():
    for _ in range(2):
        (out + 1).addmm_(x, weight).sum().backward()

@torch.no_grad()
def into_a_tensor():
    for _ in range(2):
        torch.mm(x, weight, out=out)
        out.addmm_(x, weight)

@torch.no_grad()
def served():
    for _ in range(2):
        layer(x)

def dropped():
    for _ in range(2):
        torch.empty(BYTES, dtype=torch.uint8, device="cuda")
        torch.empty(LIGHT, dtype=torch.uint8, device="cuda")
        (weight * 2).sum().backward()

def found(program):
    "The bytes of workspaces and of temporaries over all instants, but for small ones."
    with memlab.MemorySnapshot() as snapshot:
        program()
    recording = snapshot.data()
    seen = {"workspace": set(), "temporary": set()}
    for i in range(recording.counts(0)["events"]):
        amounts = snapshot.at(f"event:{i}")["by_category"]
        for category, sizes in seen.items():
            sizes.add(amounts[category] >> 20 << 20)
    return {category: sorted(sizes - {0}) for category, sizes in seen.items()}
"""
WANTED = {
    "trained": {"workspace": [LIGHT, BYTES], "temporary": []},
    "in_place": {"workspace": [BYTES], "temporary": []},
    # Without a node nothing tells them from tensors of their sizes.
    "into_a_tensor": {"workspace": [], "temporary": [BYTES]},
    "served": {"workspace": [], "temporary": [LIGHT]},
    "dropped": {"workspace": [], "temporary": [LIGHT, BYTES]},
}


def instants(gpu):
    program = INSTANTS.replace("BYTES", str(BYTES)).replace("LIGHT", str(LIGHT))
    program += f"print(json.dumps([found(p) for p in ({', '.join(WANTED)})]))\n"
    said = on_phantom.output(program, gpu=gpu)
    return dict(zip(WANTED, json.loads(said.splitlines()[-1]), strict=True))


def test_which_are_told():
    assert instants("h100") == WANTED


def test_the_odd_size_tells_by_itself():
    said = instants("a100")
    assert said["into_a_tensor"]["temporary"] == []
    assert said["into_a_tensor"]["workspace"] == [ODD >> 20 << 20]
    assert said["trained"]["workspace"] == [LIGHT, ODD >> 20 << 20]
