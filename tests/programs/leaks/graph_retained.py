"""Losses are kept, and backward() was told to keep their graphs.

held by: local `losses[...]` of train()
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


def train():
    losses = []
    for _ in range(8):
        out = model(torch.randn(16, 64))
        loss = out.pow(2).mean()  # leaks
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss)


train()
