"""Eight ranks, two a stage, that should be alike, and are not:

rank 1 has four times the batch in step 3, a block of rank 3 keeps 64 KiB of each step, rank 5
runs out of memory in step 4 and goes on, and the last stage, ranks 6 and 7, keeps more than the
others for its backward pass.

    torchrun --nproc-per-node 8 -m memlab run planted.py [STEPS]
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, ROWS, LAYERS = 512, 2048, 4


class Block(nn.Module):
    def __init__(self, stage, kept=None):
        super().__init__()
        self.stage, self.kept = stage, kept
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, full=False):
        if full:
            torch.empty(1 << 40, device="cuda")
        if self.kept is not None:
            self.kept.append(x.detach()[:32].clone())
        wide = self.up(x)
        if self.stage == 3:
            wide = wide.exp().log()
        return x + self.down(wide.relu())


class Stage(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.blocks = nn.ModuleList(
            Block(rank // 2, [] if (rank, i) == (3, 2) else None) for i in range(LAYERS)
        )

    def forward(self, x, full=False):
        for block in self.blocks:
            x = block(x, full)
        return x


def step(stage, optimizer, rank, number):
    many = 4 if (rank, number) == (1, 3) else 1
    batch = torch.randn(many * ROWS, WIDTH, device="cuda")
    try:
        out = stage(batch, full=(rank, number) == (5, 4))
        out.square().mean().backward()
    except torch.OutOfMemoryError:
        print("out of memory, going on", flush=True)
    optimizer.step()
    optimizer.zero_grad()


def main(steps):
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("stages", "shards"))
    stage = Stage(rank).cuda()
    for block in stage.blocks:
        fully_shard(block, mesh=mesh["shards"])
    fully_shard(stage, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(stage.parameters())
    for number in range(steps):
        step(stage, optimizer, rank, number)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
