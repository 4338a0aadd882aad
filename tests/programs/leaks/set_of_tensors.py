"""A set of what was seen.

held by: a member of global `seen`
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


seen = set()
for _ in range(8):
    x = torch.randn(16, 64)
    seen.add(x.sign())  # leaks
    step(x)
