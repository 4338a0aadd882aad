"""A hook of a parameter collects gradients.

held by: global `gradients[...]`
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


gradients = []


def keep(gradient):
    gradients.append(gradient.clone())  # leaks


model[0].weight.register_hook(keep)
for _ in range(8):
    step(torch.randn(16, 64))
