"""A forward hook puts every output in a list that nobody empties."""

import sys

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2048), nn.Linear(2048, 64))
    model.cuda()
    seen = []

    def hook(module, inputs, output):
        seen.append(output.shape if mended else output)

    model[1].register_forward_hook(hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.zeros(1024, 512, device="cuda")).sum().backward()  # waste
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
