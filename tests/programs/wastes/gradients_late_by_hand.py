"""A loop without an optimizer frees gradients after the forward pass, not before it: they
are there beside all of its activations."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
    x = torch.zeros(1024, 1024, device="cuda")
    for _ in range(3):
        if mended:
            model.zero_grad()
        loss = model(x).relu().sum()
        model.zero_grad()  # waste
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight.sub_(weight.grad, alpha=0.1)


if __name__ == "__main__":
    main("--mended" in sys.argv)
