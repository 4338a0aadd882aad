"""Losses of an evaluation go to a list with their graphs, and so all activations do."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 64)).cuda()
    losses = []
    for _ in range(8):
        x = torch.zeros(1024, 64, device="cuda")
        loss = (model(x) - x).square().mean()  # waste
        losses.append(loss.detach() if mended else loss)
        del loss, x


if __name__ == "__main__":
    main("--mended" in sys.argv)
