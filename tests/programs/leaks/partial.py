"""Callbacks that were made for later hold their arguments.

held by: `later[...]
since step: 0
"""

import functools

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


later = []
for _ in range(8):
    x = torch.randn(16, 64)
    later.append(functools.partial(print, x.ceil()))  # leaks
    step(x)
