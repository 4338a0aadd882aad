"""Generators that were begun and not ended.

held by: local `batch` of suspended batches()
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


def batches():
    batch = torch.randn(16, 64)  # leaks
    yield batch
    yield batch + 1


begun = []
for _ in range(8):
    source = batches()
    begun.append(source)
    step(next(source))
