"""Training of many kinds, each operation on a line of its own, watched by node_truth.

forward_lines.py DEVICE FOLDER PROGRAM...: for each PROGRAM writes PROGRAM.pickle, the
recording, and PROGRAM.json, what torch says of each node.
"""

import sys
import threading

import node_truth
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import memlab

DEVICE, FOLDER = sys.argv[1:3]


def ones(*shape):
    return torch.ones(shape, device=DEVICE)


def weight(*shape):
    return torch.full(shape, 0.01, device=DEVICE, requires_grad=True)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.norm = nn.LayerNorm(256)
        self.down = nn.Linear(256, 64)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        kept = x
        x = self.up(x)
        x = self.act(x)
        x = self.norm(x)
        x = F.gelu(x)
        x = F.dropout(x, 0.1)
        x = self.down(x)
        x = x + kept
        x = x * 0.5
        return x


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(x)
        q, k, v = qkv.split(c, dim=2)
        q = q.view(b, t, 4, c // 4).transpose(1, 2)
        k = k.view(b, t, 4, c // 4).transpose(1, 2)
        v = v.view(b, t, 4, c // 4).transpose(1, 2)
        scores = q @ k.transpose(-2, -1)
        scores = scores / 4.0
        mask = torch.ones(t, t, dtype=torch.bool, device=DEVICE)
        mask = mask.triu(1)
        scores = scores.masked_fill(mask, -1e4)
        scores = F.softmax(scores, dim=-1)
        y = scores @ v
        y = y.transpose(1, 2)
        y = y.contiguous()
        y = y.view(b, t, c)
        return self.out(y)


def step(loss):
    loss.backward()


def mlp():
    net = nn.Sequential(Mlp(), Mlp()).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(2):
        x = torch.randn(32, 64, device=DEVICE)
        y = net(x)
        loss = y.square()
        loss = loss.mean()
        step(loss)
        optimizer.step()
        optimizer.zero_grad()


def attention():
    net = nn.Sequential(Attention(), Attention()).to(DEVICE)
    for _ in range(2):
        x = torch.randn(2, 16, 64, device=DEVICE)
        y = net(x)
        loss = y.sum()
        step(loss)


def in_place():
    w = weight(64, 64)
    bias = weight(64)
    for _ in range(3):
        x = ones(32, 64)
        y = x @ w
        y.mul_(2)
        mask = ones(32, 64)
        y = y * mask
        y.add_(bias)
        keep = x.gt(0)
        y = y.masked_fill(keep, 1.0)
        y = y @ w
        y.sigmoid_()
        noise = torch.rand(32, 64, device=DEVICE)
        y = y + noise
        y.neg_()
        scale = x.sum()
        y.div_(scale)
        y.relu_()
        positive = x + 1
        y = y - positive
        part = y @ w
        part[:, :8] = 0
        part[:, 8:16] *= 2
        other = x * 3
        part[0] = bias
        z = part.cos()
        z.sub_(other)
        z = z.tanh()
        loss = z.sum()
        step(loss)


def views():
    w = weight(64, 64)
    bias = weight(64)
    for _ in range(3):
        x = ones(32, 64)
        y = x @ w
        left = y[:, :32]
        right = y[:, 32:]
        first = y[0]
        parts = y.chunk(4, dim=1)
        rows = y.unbind(0)
        index = torch.arange(8, device=DEVICE)
        picked = y[index]
        wide = bias.expand(32, 64)
        flat = y.t()
        corner = y.diagonal()
        windows = y.unfold(1, 8, 4)
        mask = x > 0
        z = left - right
        z = z * 2
        narrow = z.narrow(0, 4, 8)
        a = narrow.exp()
        b = first.sin()
        c = torch.cat([parts[0], parts[2]], 1)
        d = rows[3].cos()
        e = picked.sigmoid()
        f = wide.tanh()
        g = flat.contiguous()
        h = corner.exp()
        i = windows.sum(-1)
        j = torch.where(mask, y, 0.0)
        loss = a.sum() + b.sum() + c.sum()
        loss = loss + d.sum() + e.sum()
        loss = loss + f.sum() + g.sum()
        loss = loss + h.sum() + i.sum() + j.sum()
        step(loss)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, gradient):
        x, gate = ctx.saved_tensors
        slope = 1 - gate
        slope = slope * x
        return gradient * gate * (1 + slope)


class Twice(torch.autograd.Function):
    """Its forward allocates nothing."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def custom():
    w = weight(64, 64)
    for _ in range(2):
        x = ones(32, 64)
        y = x @ w
        y = Swish.apply(y)
        y = Twice.apply(y)
        mask = ones(32, 64)
        y = y * mask
        y = Swish.apply(y)
        y = y.sin()
        loss = y.sum()
        step(loss)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)

    def forward(self, x):
        y = self.up(x)
        y = torch.sin(y)
        y = y.view(-1, 8, 16)
        y = y.transpose(1, 2)
        y = torch.exp(y)
        y = y.reshape(-1, 128)
        y = y * 0.1
        y = self.down(y)
        return x + y


def inner(x, w):
    y = x @ w
    y = torch.tanh(y)
    y = y[:, :32] * y[:, 32:]
    y = torch.cat([y, y], 1)
    return y


def checkpointed(reentrant):
    blocks = nn.ModuleList([Block() for _ in range(3)]).to(DEVICE)
    w = weight(64, 64)
    for _ in range(2):
        x = ones(32, 64)
        x = x @ w
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        x = checkpoint(inner, x, w, use_reentrant=reentrant)
        loss = x.sum()
        step(loss)


def checkpoints():
    checkpointed(False)


def reentrant_checkpoints():
    checkpointed(True)


def threads():
    nets = [Mlp().to(DEVICE), Attention().to(DEVICE)]

    def train_mlp():
        for _ in range(5):
            x = torch.randn(32, 64, device=DEVICE)
            y = nets[0](x)
            loss = y.square().mean()
            loss.backward()

    def train_attention():
        for _ in range(5):
            x = torch.randn(2, 16, 64, device=DEVICE)
            y = nets[1](x)
            loss = y.exp().mean()
            loss.backward()

    workers = [threading.Thread(target=f) for f in (train_mlp, train_attention)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def amp():
    net = nn.Sequential(Mlp(), Mlp()).to(DEVICE)
    w = weight(64, 64)
    for _ in range(2):
        x = torch.randn(32, 64, device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            y = net(x)
            y = y @ w
            y = y.softmax(-1)
            y = y.float()
            y = y @ w
            y = y * x
            loss = y.sum()
        step(loss)


def double():
    """The gradient of a gradient."""
    w = weight(64, 64)
    for _ in range(2):
        x = ones(32, 64).requires_grad_()
        y = x @ w
        y = torch.tanh(y)
        y = y.exp()
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        norm = gradient.square()
        norm = norm.sum()
        loss = norm + y.mean()
        step(loss)


def seeded():
    """A backward pass that is given its gradient, and nothing else between."""
    w = weight(64, 64)
    gradient = ones(4, 8, 64)
    for _ in range(2):
        x = ones(32, 64)
        y = x @ w
        y = y.sin()
        y = y.mul(2)
        y = y.view(4, 8, 64)
        y.backward(gradient)


def gpt2():
    import transformers

    config = transformers.GPT2Config(n_layer=3 if DEVICE == "cpu" else 12)
    if DEVICE == "cpu":
        config.n_embd, config.n_head, config.vocab_size = 128, 4, 1000
    net = transformers.GPT2LMHeadModel(config).to(DEVICE)
    net.train()
    for _ in range(2):
        ids = torch.zeros(2, 64, dtype=torch.long, device=DEVICE)
        loss = net(input_ids=ids, labels=ids).loss
        step(loss)


def record(name):
    snapshot = memlab.MemorySnapshot(device=DEVICE, max_entries=10_000_000)
    snapshot.start()
    globals()[name]()
    snapshot.stop()
    snapshot.save(f"{FOLDER}/{name}.pickle")
    node_truth.save(f"{FOLDER}/{name}.json")


if __name__ == "__main__":
    if DEVICE == "cuda":
        torch.cuda.init()
    node_truth.begin()
    for program in sys.argv[3:]:
        record(program)
