"""Tries operations of torch that rest on CUB and Thrust on phantom GPUs, the arguments.

Prints a line of JSON for each GPU and operation: their names and the error, or null where
it ran.  CUB picks its tuning by the device code that would run, so each GPU may take
another path.  A GPU has a forked process of its own; this one does not touch CUDA.
"""

import json
import os
import sys
import warnings

import torch
import torch.nn.functional as F

DEVICE = "cuda"
OPERATIONS = []
# More than a block sorts, and more indices than the embedding's small kernel takes (3,072).
MANY = 100_000


def operation(function):
    OPERATIONS.append(function)
    return function


def randn(*size, **options):
    return torch.randn(*size, device=DEVICE, **options)


def integers(high, *size):
    return torch.randint(0, high, size, device=DEVICE)


@operation
def sort():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        randn(MANY).to(dtype).sort()
    integers(9, MANY).sort(descending=True, stable=True)
    integers(9, MANY).bool().sort()
    randn(8, 5000).sort(dim=0)
    randn(300, 300).argsort()


@operation
def topk():
    randn(MANY).topk(5)
    randn(16, MANY).topk(2000)
    randn(MANY).kthvalue(7)
    randn(MANY).median()


@operation
def randperm():
    torch.randperm(100, device=DEVICE)
    torch.randperm(MANY, device=DEVICE)


@operation
def cumulative():
    randn(MANY).cumsum(0)
    randn(64, 1000).cumsum(1)
    randn(MANY).cumprod(0)
    randn(MANY).logcumsumexp(0)
    randn(MANY).cummax(0)
    integers(9, MANY).cumsum(0)


@operation
def unique():
    integers(9, MANY).unique()
    integers(9, MANY).unique(return_inverse=True, return_counts=True)
    integers(9, 1000, 4).unique(dim=0)
    integers(9, MANY).unique_consecutive(return_counts=True)


@operation
def nonzero():
    randn(MANY).nonzero()
    randn(300, 300).nonzero(as_tuple=True)
    torch.argwhere(randn(300, 300) > 0)
    randn(MANY).count_nonzero()


@operation
def masks():
    x, mask = randn(MANY), randn(MANY) > 0
    x[mask]
    x[mask] = 1.0
    x.masked_select(mask)
    x.masked_scatter(mask, randn(MANY))
    torch.where(mask)


@operation
def histograms():
    randn(MANY).histc(50)
    integers(9, MANY).bincount()
    torch.bucketize(randn(MANY), torch.linspace(-1, 1, 9, device=DEVICE))


@operation
def repeats():
    integers(9, 100).repeat_interleave(integers(9, 100), output_size=400)
    torch.isin(integers(9, MANY), integers(9, MANY), assume_unique=True)


@operation
def embeddings():
    for size in (3072, 3073, MANY):
        for options in ({}, {"padding_idx": 3}, {"scale_grad_by_freq": True}):
            table = randn(1000, 16, requires_grad=True)
            F.embedding(integers(1000, size), table, **options).sum().backward()
    for mode in ("sum", "mean", "max"):
        table = randn(1000, 16, requires_grad=True)
        F.embedding_bag(integers(1000, 4096, 4), table, mode=mode).sum().backward()


@operation
def accumulation():
    x, at = randn(1000, 16), integers(1000, MANY)
    x.index_put((at,), randn(MANY, 16), accumulate=True)
    x.put_(at, randn(MANY), accumulate=True)
    torch.use_deterministic_algorithms(True)
    try:
        x.index_add(0, at, randn(MANY, 16))
        x.scatter_add(0, at.unsqueeze(1).expand(-1, 16), randn(MANY, 16))
        randn(MANY).cumsum(0)
    finally:
        torch.use_deterministic_algorithms(False)


@operation
def sparse():
    indices = integers(1000, 2, MANY)
    torch.sparse_coo_tensor(
        indices, randn(MANY), (1000, 1000), check_invariants=False
    ).coalesce()
    randn(100, 100).to_sparse()


@operation
def sampling():
    torch.multinomial(torch.ones(1000, device=DEVICE), 10)
    F.gumbel_softmax(randn(10, 1000), hard=True)


def try_all(gpu):
    os.environ["MEMLAB_PHANTOM_GPU"] = gpu
    for tried in OPERATIONS:
        error = None
        try:
            tried()
            torch.cuda.synchronize()
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        print(json.dumps([gpu, tried.__name__, error]), flush=True)


def main():
    warnings.simplefilter("ignore")
    for gpu in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            try:
                try_all(gpu)
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            print(json.dumps([gpu, "", f"ended with status {status}"]), flush=True)


main()
