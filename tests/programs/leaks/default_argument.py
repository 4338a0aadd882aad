"""A list that is a default argument.

held by: default argument `seen[...]` of `log`
since step: 0
"""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def log(tensor, seen=[]):  # noqa: B006
    seen.append(tensor.abs())  # leaks


for _ in range(8):
    x = torch.randn(16, 64)
    log(x)
    step(x)
