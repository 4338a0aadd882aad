"""A running total of losses keeps the graphs of all of them.

held by: global `total.grad_fn
since step: 1
"""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


total = 0
for _ in range(8):
    x = torch.randn(16, 64)
    step(x)
    total = total + model(x).pow(2).mean()  # leaks
