"""A dict has an entry of each step.

held by: global `cache[...]`
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


cache = {}
for i in range(8):
    x = torch.randn(16, 64)
    cache[i] = x * 2  # leaks
    step(x)
