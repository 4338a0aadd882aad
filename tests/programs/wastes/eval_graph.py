"""An evaluation runs without torch.no_grad()."""

import contextlib
import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(512, 512), nn.GELU())))
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.zeros(512, 512, device="cuda")).sum().backward()
        optimizer.step()
        with torch.no_grad() if mended else contextlib.nullcontext():
            x = torch.zeros(4096, 512, device="cuda")
            score = model(x).sum()  # waste
            score.item()
        del x, score


if __name__ == "__main__":
    main("--mended" in sys.argv)
