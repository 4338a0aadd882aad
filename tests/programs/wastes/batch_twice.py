"""A batch is converted on the GPU, and a variable holds it as it was, too."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))
    model = model.to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(3):
        batch = torch.zeros(4096, 4096).cuda()  # waste
        x = batch.bfloat16()
        if mended:
            del batch
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        batch = x = None


if __name__ == "__main__":
    main("--mended" in sys.argv)
