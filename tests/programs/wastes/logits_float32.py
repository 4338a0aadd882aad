"""Logits in bfloat16 are cast to float32 for the loss."""

import sys

import torch
from torch import nn


def main(mended):
    words = 16384
    head = nn.Linear(256, words, bias=False).to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        hidden = torch.zeros(1024, 256, device="cuda", dtype=torch.bfloat16)
        targets = torch.zeros(1024, device="cuda", dtype=torch.int64)
        optimizer.zero_grad()
        logits = head(hidden)
        if not mended:
            logits = logits.float()  # waste
        loss = nn.functional.cross_entropy(logits, targets)
        del logits
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
