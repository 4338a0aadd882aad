"""Gradients of eight passes are summed before a step."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for i in range(48):
    model(torch.randn(16, 64)).pow(2).mean().backward()
    if i % 8 == 7:
        optimizer.step()
        optimizer.zero_grad()
