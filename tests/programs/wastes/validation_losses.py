"""The last losses of a validation are kept with their graphs, while the training goes on."""

import sys
from collections import deque

import torch
from torch import nn


def main(mended):
    model = nn.Sequential(nn.Linear(16, 2048), nn.Tanh(), nn.Linear(2048, 1024), nn.ReLU())
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    recent = deque(maxlen=3)
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.zeros(512, 16, device="cuda")).sum().backward()
        optimizer.step()
        x = torch.zeros(1024, 16, device="cuda")
        loss = model(x).abs().mean()  # waste
        recent.append(loss.detach() if mended else loss)
        del loss, x


if __name__ == "__main__":
    main("--mended" in sys.argv)
