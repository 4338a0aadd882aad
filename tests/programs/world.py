"""A program of many ranks, in one of the ways that torch offers to spread a model.

    torchrun --nproc-per-node 2 world.py fsdp2
    memlab fit --world-size 1024 world.py fsdp2

Layers of WIDTH squared are trained with AdamW for three steps.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, BATCH = 1024, 4, 64


def model():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def ddp(layers):
    return nn.parallel.DistributedDataParallel(layers)


def ddp_view(layers):
    return nn.parallel.DistributedDataParallel(layers, gradient_as_bucket_view=True)


def fsdp1(layers):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(
        layers,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.cuda.current_device(),
    )


def fsdp2(layers, **options):
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer, **options)
    return fully_shard(layers, **options)


def fsdp2_keep(layers):
    return fsdp2(layers, reshard_after_forward=False)


def fsdp2_mixed(layers):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return fsdp2(layers, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def hsdp(layers):
    """A mesh of two dimensions: copies of shards."""
    ranks = dist.get_world_size()
    shards = min(8, ranks // 2)
    mesh = dist.device_mesh.init_device_mesh(
        "cuda", (ranks // shards, shards), mesh_dim_names=("replicate", "shard")
    )
    return fsdp2(layers, mesh=mesh)


def tp(layers, mesh=None):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = mesh or dist.device_mesh.init_device_mesh("cuda", (dist.get_world_size(),))
    ways = [ColwiseParallel, RowwiseParallel]
    plan = {str(i): ways[i % 2]() for i in range(LAYERS)}
    return parallelize_module(layers, mesh, plan)


def tp_fsdp2(layers):
    """Shards of what two ranks share."""
    mesh = dist.device_mesh.init_device_mesh(
        "cuda", (dist.get_world_size() // 2, 2), mesh_dim_names=("shard", "tp")
    )
    return fsdp2(tp(layers, mesh["tp"]), mesh=mesh["shard"])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries, self.keys, self.values = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)
        )

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (-1, 64)).transpose(1, 2).bfloat16()
            for layer in (self.queries, self.keys, self.values)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.float().transpose(1, 2).flatten(2)


def cp(layers):
    """The sequence is shared; keys and values go around."""
    return nn.Sequential(Attention().cuda(), layers)


class Experts(nn.Module):
    """Each rank has one expert; rows are sent to them and come back."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, dist.get_world_size())
        self.expert = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        from torch.distributed.nn.functional import all_to_all_single

        x = x * self.gate(x).softmax(-1).amax(-1, keepdim=True)
        there = all_to_all_single(torch.empty_like(x), x)
        return all_to_all_single(torch.empty_like(x), self.expert(there))


def ep(layers):
    return nn.Sequential(ddp(layers), Experts().cuda())


def zero(layers):
    return ddp(layers)


def offload(layers):
    return ddp(layers)


def optimizer_of(kind, layers):
    if kind == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(layers.parameters(), torch.optim.AdamW)
    return torch.optim.AdamW(layers.parameters(), foreach=None if kind != "tp" else False)


def step_alone(kind, layers):
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    layers(inputs).square().mean().backward()


def step_offloaded(kind, layers):
    """What the backward pass needs waits in the host's memory."""
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = layers(inputs).square().mean()
    loss.backward()


def step_shared(kind, layers):
    """With a sequence of which each rank has its part."""
    from torch.distributed.tensor.experimental import context_parallel

    ranks = dist.get_world_size()
    mesh = dist.device_mesh.init_device_mesh("cuda", (ranks,))
    inputs = torch.randn(1, 256 * ranks, WIDTH, device="cuda")
    with context_parallel(mesh, buffers=[inputs], buffer_seq_dims=[1]):
        layers(inputs).square().mean().backward()


class Pipeline:
    """A rank's stages of a pipeline, and its schedule.  shapes: the inputs of stages are
    given; else the stage before sends what it found."""

    def __init__(self, schedule, shapes, loops=1):
        from torch.distributed import pipelining

        self.rank, ranks = dist.get_rank(), dist.get_world_size()
        self.last = self.rank == ranks - 1
        self.layers = nn.ModuleList()
        stages, parts = [], max(4, ranks)
        for number in range(self.rank, loops * ranks, ranks):
            # Unlike each other, so that shapes of one stage do not serve another.
            wide = [WIDTH + 64 * i for i in range(2 * number, 2 * number + 3)]
            layers = nn.Sequential(nn.Linear(*wide[:2]), nn.Linear(*wide[1:])).cuda()
            given = {}
            if shapes:
                rows = BATCH // parts
                given["input_args"] = (torch.empty(rows, wide[0], device="meta"),)
                given["output_args"] = (torch.empty(rows, wide[2], device="meta"),)
            device = torch.device("cuda", torch.cuda.current_device())
            stages.append(
                pipelining.PipelineStage(layers, number, loops * ranks, device, **given)
            )
            self.layers.append(layers)
        self.schedule = getattr(pipelining, schedule)(
            stages if loops > 1 else stages[0],
            n_microbatches=parts,
            loss_fn=lambda y, target: y.square().mean(),
        )

    def parameters(self):
        return self.layers.parameters()

    def step(self):
        inputs = [torch.randn(BATCH, WIDTH, device="cuda")] if self.rank == 0 else []
        target = torch.empty(BATCH, 1, device="cuda") if self.last else None
        self.schedule.step(*inputs, target=target)


def pp_gpipe(layers):
    return Pipeline("ScheduleGPipe", shapes=True)


def pp_1f1b(layers):
    return Pipeline("Schedule1F1B", shapes=True)


def pp_inferred(layers):
    return Pipeline("Schedule1F1B", shapes=False)


def pp_loops(layers):
    """Each rank has two stages: what the last rank sends, the first one gets."""
    return Pipeline("ScheduleInterleaved1F1B", shapes=False, loops=2)


def train(kind, at=lambda point: None):
    """AT is told each point that is reached."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    at("process group")
    layers = globals()[kind](None if kind.startswith("pp") else model().cuda())
    at("spread")
    optimizer = optimizer_of(kind, layers)
    step = {"cp": step_shared, "offload": step_offloaded}.get(kind, step_alone)
    for number in range(3):
        if isinstance(layers, Pipeline):
            layers.step()
        else:
            step(kind, layers)
        optimizer.step()
        optimizer.zero_grad()
        at(f"step {number + 1}")
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1])
