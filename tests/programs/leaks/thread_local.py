"""A list of a threading.local().

held by: thread-local `local.items[...]`
since step: 0
"""

import threading

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


local = threading.local()
local.items = []
for _ in range(8):
    x = torch.randn(16, 64)
    local.items.append(x.floor())  # leaks
    step(x)
