"""Trains a small GPT on the bytes of a text, in plain PyTorch.

    python examples/train_gpt.py
    memlab run --out memlab_out examples/train_gpt.py --steps 3

The model is the usual decoder-only transformer: every byte is a token, and the network
learns to predict the next one.  Nothing here knows of memlab.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

TEXT = Path(__file__).parent / "data" / "sonnets.txt"
BYTE_VALUES = 256


class CausalSelfAttention(nn.Module):
    """Each position mixes in what it finds relevant at the positions before it."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(dim, dim=2)
        )
        scores = query @ key.transpose(-2, -1) * (dim // self.heads) ** -0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, dim)
        return self.out(mixed)


class MLP(nn.Module):
    """Works on each position by itself, four times as wide inside."""

    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        hidden = F.gelu(self.up(x))
        return self.down(hidden)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = CausalSelfAttention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        x = x + self.mlp(self.mlp_norm(x))
        return x


class GPT(nn.Module):
    def __init__(self, length, layers, heads, dim):
        super().__init__()
        self.bytes = nn.Embedding(BYTE_VALUES, dim)
        self.positions = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, BYTE_VALUES, bias=False)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.bytes(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def sample_batch(data, batch, length, device):
    """BATCH random pieces of the text, and the same pieces one byte later."""
    starts = torch.randint(len(data) - length - 1, (batch,))
    pieces = torch.stack([data[s : s + length + 1] for s in starts.tolist()]).long()
    pieces = pieces.to(device)
    return pieces[:, :-1], pieces[:, 1:]


def train(args):
    torch.manual_seed(args.seed)
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    data = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8)
    if len(data) < args.block + 2:
        raise SystemExit(
            f"train_gpt: {args.text} has {len(data)} bytes, --block {args.block} needs "
            f"at least {args.block + 2}"
        )
    model = GPT(args.block, args.layers, args.heads, args.dim).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.1f} M parameters on {device}", flush=True)

    for step in range(1, args.steps + 1):
        started = time.perf_counter()
        tokens, targets = sample_batch(data, args.batch, args.block, device)
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        seconds = time.perf_counter() - started
        progress = f"step {step}/{args.steps}  loss {value:.3f}  {seconds:.2f} s"
        print(progress, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--block", type=int, default=256, help="bytes a sequence")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--dim", type=int, default=384, help="multiple of --heads")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="default: cuda if there is one, else cpu")
    parser.add_argument("--text", type=Path, default=TEXT, help="file to learn from")
    args = parser.parse_args()
    if args.dim % args.heads:
        parser.error(f"--dim {args.dim} is not a multiple of --heads {args.heads}")
    train(args)


if __name__ == "__main__":
    main()
