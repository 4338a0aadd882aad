"""The loss of a large vocabulary is computed of all tokens at once."""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def part(head, hidden, targets):
    return nn.functional.cross_entropy(head(hidden), targets, reduction="sum")


def main(mended):
    body = nn.Linear(256, 256).cuda()
    head = nn.Linear(256, 16384, bias=False).cuda()
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
    for _ in range(3):
        x = torch.zeros(4096, 256, device="cuda")
        targets = torch.zeros(4096, device="cuda", dtype=torch.int64)
        optimizer.zero_grad()
        hidden = body(x)
        if mended:
            loss = 0
            for h, t in zip(hidden.chunk(8), targets.chunk(8), strict=True):
                loss = loss + checkpoint(part, head, h, t, use_reentrant=False)
        else:
            logits = head(hidden)
            loss = nn.functional.cross_entropy(logits, targets, reduction="sum")  # waste
            del logits
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
