"""Parameters, gradients and optimizer state in pieces: bytes worked out by hand, for a rank
of a group of four that exchanges nothing, on torch's CPU allocator and on a GPU."""

import json

import pytest
import warm

MIB = 1 << 20

# Three layers of two weights of 2 MiB, and a head of 1 MiB.
PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from torch import nn
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import memlab

KIND, DEVICE, WHERE = {arguments!r}
WORLD = 4

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(512, 1024, bias=False)
        self.b = nn.Linear(1024, 512, bias=False)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))

def peak_here():
    torch.empty(32 << 20, device=DEVICE)  # 128 MiB

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(512, 512, bias=False)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        y = self.head(x)
        if WHERE == "forward":
            peak_here()
        return y

def begin():
    if KIND.startswith("ddp"):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())

def two_dimensions():
    return init_device_mesh(DEVICE, (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))

def fully_sharded(model):
    from torch.distributed.fsdp import fully_shard
    mesh = two_dimensions() if KIND == "hsdp" else init_device_mesh(DEVICE, (WORLD,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def tensor_parallel(model):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh(DEVICE, (WORLD,))
    for layer in model.layers:
        parallelize_module(layer, mesh, {{"a": ColwiseParallel(), "b": RowwiseParallel()}})
    return model

def first_version(model):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    more = {{}}
    if KIND == "fsdp1_hybrid":
        more = {{"device_mesh": two_dimensions(),
                "sharding_strategy": ShardingStrategy.HYBRID_SHARD}}
    return FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({{Layer}}),
        use_orig_params=KIND == "fsdp1_orig", device_id=torch.device(DEVICE), **more)

def data_parallel(model):
    return nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=KIND == "ddp_views")

def flat(model):
    parameters = list(model.parameters())
    total = sum(p.numel() for p in parameters)
    data, gradients = torch.empty(2, total, device=DEVICE).unbind()
    data, gradients = data.clone(), gradients.clone()
    for p, new, gradient in zip(
        parameters, data.split([p.numel() for p in parameters]),
        gradients.split([p.numel() for p in parameters]), strict=True):
        p.data = new.view_as(p)
        p.grad = gradient.view_as(p)
    return model

WRAP = {{"fsdp2": fully_sharded, "hsdp": fully_sharded, "tp": tensor_parallel,
        "fsdp1": first_version, "fsdp1_orig": first_version,
        "fsdp1_hybrid": first_version, "ddp": data_parallel, "ddp_views": data_parallel,
        "flat": flat}}

def main():
    model = WRAP[KIND](Model().to(DEVICE))
    if WHERE == "forward":
        with torch.no_grad():
            for _ in range(2):
                model(torch.ones(64, 512, device=DEVICE))
        return
    optimizer = torch.optim.Adam(model.parameters(), foreach=KIND != "tp")
    for step in range(3):
        x = torch.ones(64, 512, device=DEVICE)
        model(x).sum().backward()
        if step == 2:
            peak_here()
        optimizer.step()
        optimizer.zero_grad(set_to_none=KIND != "flat")

if DEVICE == "cuda":
    torch.cuda.init()
begin()
with memlab.MemorySnapshot(device=None if DEVICE == "cuda" else DEVICE) as snapshot:
    main()
peak = snapshot.peak()
print(json.dumps([peak["by_category"], sorted({{row["module"] for row in peak["by_module"]}}),
                  [row["reason"] for row in peak["by_module"] if not row["module"]]]))
dist.destroy_process_group()
"""

# The rank's bytes of the parameters, in MiB.
WEIGHTS = {
    "fsdp2": 13 / 4,
    "hsdp": 13 / 2,
    "tp": 12 / 4 + 1,  # the head is whole
    "fsdp1": 13 / 4,
    "fsdp1_orig": 13 / 4,
    "fsdp1_hybrid": 13 / 2,
    "ddp": 13,
    "ddp_views": 13,
    "flat": 13,
}


def run(kind, device, where):
    done = warm.run(PROGRAM.format(arguments=(kind, device, where)))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check_training(kind, categories, modules, reasons, small):
    weights = WEIGHTS[kind] * MIB
    assert categories["parameter"] == weights
    assert categories["gradient"] == weights
    # Adam's two, and its counts of steps.
    assert 0 <= categories["optimizer_state"] - 2 * weights <= small
    assert "in an optimizer's step" not in reasons
    assert "its owner is in no module" not in reasons
    # The second weight of a layer at least, or the unit that has it.
    assert any("layers.2" in module for module in modules)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_training(torch, kind):
    categories, modules, reasons = run(kind, "cpu", "step")
    check_training(kind, categories, modules, reasons, 7 * 4)


@pytest.mark.parametrize("kind", ["fsdp2", "hsdp", "fsdp1", "fsdp1_orig", "tp"])
def test_inference_while_modules_are_gathered(torch, kind):
    """What is gathered of other ranks is no parameter, whoever holds it."""
    categories, modules, _ = run(kind, "cpu", "forward")
    assert categories["parameter"] == WEIGHTS[kind] * MIB
    if kind != "tp":
        assert categories["communication"] >= MIB  # the head, whole
    assert any("layers.2" in module for module in modules)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["fsdp2", "tp"])
def test_training_on_a_gpu(phantom_run, kind):
    done = phantom_run(PROGRAM.format(arguments=(kind, "cuda", "step")))
    check_training(kind, *json.loads(done.stdout), 0)
