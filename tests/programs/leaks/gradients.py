"""Gradients are kept while zero_grad() lets go of them.

held by: global `gradients[...][...]`
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
for _ in range(8):
    loss = model(torch.randn(16, 64)).pow(2).mean()  # leaks
    loss.backward()
    gradients.append([parameter.grad for parameter in model.parameters()])
    optimizer.step()
    optimizer.zero_grad()
