"""A cache has a table for each of five lengths, which come again and again."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


tables = {}
for i in range(15):
    length = 8 + i % 5
    if length not in tables:
        tables[length] = torch.ones(length, 64)
    step(torch.randn(length, 64) + tables[length])
