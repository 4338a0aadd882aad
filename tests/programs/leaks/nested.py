"""A log of logs.

held by: global `logs['train'][...]`
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


logs = {"train": [], "test": []}
for _ in range(8):
    x = torch.randn(16, 64)
    logs["train"].append(x.round())  # leaks
    step(x)
