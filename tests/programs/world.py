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


def fsdp2(layers, mesh=None):
    from torch.distributed.fsdp import fully_shard

    for layer in layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(layers, mesh=mesh)


def train(kind):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    layers = globals()[kind](model().cuda())
    optimizer = torch.optim.AdamW(layers.parameters())
    for _ in range(3):
        layers(torch.randn(BATCH, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1])
