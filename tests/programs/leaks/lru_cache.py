"""A cache without a limit, asked for ever new keys.

held by: a cached result of `table`
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


@functools.cache
def table(n):
    return torch.full((16, 64), float(n))  # leaks


for i in range(8):
    step(torch.randn(16, 64) + table(i))
