"""From torch 2.15 on cuBLAS gets a workspace for each product."""

import json

import pytest
from cuda_here import torch_since

PROGRAM = """
import json, torch, memlab
layer = torch.nn.Linear(64, 32, bias=False).cuda()
with memlab.MemorySnapshot() as snapshot:
    layer(torch.ones(16, 64, device="cuda"))
print(json.dumps(snapshot.peak()))
"""
BYTES = 33_554_432


@pytest.mark.cuda
@pytest.mark.skipif(not torch_since(2, 15), reason="this torch keeps its workspaces")
def test_it_is_a_workspace_and_of_the_module_that_multiplies(phantom_run):
    peak = json.loads(phantom_run(PROGRAM).stdout)
    assert peak["by_category"]["workspace"] == BYTES
    # What the product returned, which nobody keeps.
    assert peak["by_category"]["temporary"] == 16 * 32 * 4
    module = {row["module"]: row["bytes"] for row in peak["by_module"]}
    assert module["Linear"] >= BYTES
