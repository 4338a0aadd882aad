"""A model computes its loss of all tokens at once, in training and in a larger evaluation."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.mended = mended
        self.body = nn.Linear(256, 256)
        self.head = nn.Linear(256, 16384, bias=False)

    def part(self, hidden, targets):
        return nn.functional.cross_entropy(self.head(hidden), targets, reduction="sum")

    def forward(self, x, targets):
        hidden = self.body(x)
        if self.mended:
            parts = zip(hidden.chunk(8), targets.chunk(8), strict=True)
            return sum(checkpoint(self.part, *part, use_reentrant=False) for part in parts)
        logits = self.head(hidden)
        return nn.functional.cross_entropy(logits, targets, reduction="sum")  # waste


def batch(size):
    return torch.zeros(size, 256, device="cuda"), torch.zeros(
        size, device="cuda", dtype=torch.int64
    )


def evaluate(model):
    with torch.no_grad():
        for _ in range(3):
            model(*batch(6144))


def main(mended):
    model = Model(mended).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(*batch(4096))
        loss.backward()
        optimizer.step()
        evaluate(model)


if __name__ == "__main__":
    main("--mended" in sys.argv)
