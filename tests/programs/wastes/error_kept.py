"""Steps fail behind their forward pass, and the errors, which are kept, hold their graphs."""

import sys

import torch
from torch import nn


def step(number, model, optimizer):
    optimizer.zero_grad()
    loss = model(torch.zeros(1024, 64, device="cuda")).square().mean()  # waste
    if number in (1, 2):
        raise ValueError("not a number")
    loss.backward()
    optimizer.step()


def main(mended):
    model = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 1024), nn.Tanh())
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    errors = []
    for number in range(6):
        try:
            step(number, model, optimizer)
        except ValueError as error:
            errors.append(str(error) if mended else error)


if __name__ == "__main__":
    main("--mended" in sys.argv)
