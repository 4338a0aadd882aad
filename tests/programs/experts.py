"""A program of expert parallelism: rows are sent to the ranks that have their experts, and
come back.

    torchrun --nproc-per-node 4 experts.py even [gather]
    memlab fit --world-size 64 experts.py

Without an argument a gate chooses the experts of a row.  "even" plants that each rank sends
as many rows to each expert, "all" that each sends all to the experts of rank 0; the numbers of
rows then travel by Gloo, which is real also where ranks talk on the phantom.  "gather": each
rank gathers the numbers of all; else it is told its own.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

WIDTH, ROWS, LOCAL, CHOSEN = 1024, int(os.environ.get("ROWS", 512)), 2, 2


class Experts(nn.Module):
    """LOCAL experts of each rank."""

    def __init__(self, planted, gather):
        super().__init__()
        self.planted, self.gather = planted, gather
        self.ranks = dist.get_world_size()
        self.gate = nn.Linear(WIDTH, LOCAL * self.ranks, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LOCAL))

    def choose(self, x):
        """The CHOSEN experts of each row, with weights."""
        weights, chosen = self.gate(x).softmax(-1).topk(CHOSEN)
        if self.planted is not None:
            of = LOCAL if self.planted == "all" else LOCAL * self.ranks
            chosen = torch.arange(ROWS * CHOSEN, device="cuda").view(ROWS, CHOSEN) % of
        return weights, chosen

    def forward(self, x):
        weights, chosen = self.choose(x)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.histc(
            chosen.flatten().float(), LOCAL * self.ranks, 0, LOCAL * self.ranks - 1
        ).long()
        there = counts if self.planted is None else counts.cpu()
        if self.gather:
            told = there.new_empty(self.ranks * len(there))
            dist.all_gather_into_tensor(told, there)
            come = told.view(self.ranks, self.ranks, LOCAL)[:, dist.get_rank()]
        else:
            come = torch.empty_like(there)
            dist.all_to_all_single(come, there)
        sent = counts.view(self.ranks, LOCAL).sum(1).tolist()
        come = come.reshape(self.ranks, LOCAL)
        received = come.sum(1).tolist()
        rows = x[order // CHOSEN] * weights.flatten()[order, None]
        there = all_to_all_single(rows.new_empty(sum(received), WIDTH), rows, received, sent)
        parts = there.split(come.flatten().tolist())
        done = [
            self.experts[i % LOCAL](part) if len(part) else part
            for i, part in enumerate(parts)
        ]
        back = all_to_all_single(torch.empty_like(rows), torch.cat(done), sent, received)
        return torch.zeros_like(x).index_add(0, order // CHOSEN, back)


def train(planted, gather=False, at=lambda point: None):
    """AT is told each point that is reached."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    at("process group")
    layers = nn.Sequential(*(Experts(planted, gather) for _ in range(2))).cuda()
    at("spread")
    optimizer = torch.optim.AdamW(layers.parameters())
    for number in range(3):
        layers(torch.randn(ROWS, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        at(f"step {number + 1}")


if __name__ == "__main__":
    told = set(sys.argv[1:])
    train((told & {"even", "all"} or {None}).pop(), "gather" in told)
