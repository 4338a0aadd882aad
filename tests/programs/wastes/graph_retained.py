"""backward(retain_graph=True) keeps what it saved until the next loss takes its place."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(512, 512), nn.Tanh())))
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(torch.zeros(2048, 512, device="cuda")).sum()
        loss.backward(retain_graph=not mended)  # waste
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
