"""A small transformer trained on several ranks, in one of the ways that torch offers.

    torchrun --nproc-per-node 2 ranks_train.py ddp
    python ranks_train.py ddp fsdp2        # on the phantom device: two ranks of each

The ways: ddp, ddp_view (gradient_as_bucket_view), ddp_unused (find_unused_parameters),
fsdp1, fsdp2, fsdp2_keep (reshard_after_forward=False), fsdp2_mixed (bfloat16), tp.  Each
rank prints one line of JSON: its peaks, and what is in use outside torch's allocator.
"""

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 4
WIDTH, LAYERS, HEADS, WORDS = 768, 6, 12, 16384
BATCH, LENGTH = 8, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.keys, self.values, self.out = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.before(x)
        q, k, v = (
            layer(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def ddp(model, **options):
    device = torch.cuda.current_device()
    return nn.parallel.DistributedDataParallel(model, device_ids=[device], **options)


def fsdp1(model):
    import functools

    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=torch.cuda.current_device()
    )


def fsdp2(model, **options):
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def tensor_parallel(model):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = dist.device_mesh.init_device_mesh("cuda", (dist.get_world_size(),))
    plan = {name: ColwiseParallel() for name in ("queries", "keys", "values", "up")}
    plan.update({name: RowwiseParallel() for name in ("out", "down")})
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return model


def spread(kind, model):
    if kind == "fsdp2_mixed":
        from torch.distributed.fsdp import MixedPrecisionPolicy

        return fsdp2(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    return {
        "ddp": lambda: ddp(model),
        "ddp_view": lambda: ddp(model, gradient_as_bucket_view=True),
        "ddp_unused": lambda: ddp(model, find_unused_parameters=True),
        "fsdp1": lambda: fsdp1(model),
        "fsdp2": lambda: fsdp2(model),
        "fsdp2_keep": lambda: fsdp2(model, reshard_after_forward=False),
        "tp": lambda: tensor_parallel(model),
    }[kind]()


def train(kind):
    """What a rank says of its memory after STEPS steps."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl",
        init_method=os.environ.get("MEETING", "env://"),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Model()
    model = spread(kind, model)
    # Some parameters of tp are tensors still, and these are not to be mixed.
    foreach = False if kind == "tp" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=foreach)
    for _ in range(STEPS):
        words = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
        logits = model(words)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # What a collective held is let go by a thread of torch's that looks each 100 ms,
        # and a step takes no time on the phantom.
        time.sleep(0.15)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "kind": kind,
        "rank": rank,
        "ranks": dist.get_world_size(),
        "allocated_peak": stats["allocated_bytes.all.peak"],
        "reserved_peak": stats["reserved_bytes.all.peak"],
        "requested_peak": stats["requested_bytes.all.peak"],
        "allocated": stats["allocated_bytes.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
        "allocations": stats["allocation.all.allocated"],
        "outside": total - free - torch.cuda.memory_reserved(),
    }


def two_ranks(kind):
    """Forks both, which is right only where no driver was touched; whether they did."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                os.environ.update(
                    RANK=str(rank),
                    LOCAL_RANK=str(rank),
                    WORLD_SIZE="2",
                    MEETING=f"file://{folder}/meeting",
                )
                main(kind)
                os._exit(0)
            ranks.append(pid)
        return all([os.waitpid(pid, 0)[1] == 0 for pid in ranks])


def main(kind):
    # One write: lines of ranks are not to be mixed.
    os.write(1, (json.dumps(train(kind)) + "\n").encode())
    # Each rank's part is told; nothing remains that needs the others.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(sys.argv[1])
    elif not all([two_ranks(kind) for kind in sys.argv[1:]]):
        sys.exit(1)
