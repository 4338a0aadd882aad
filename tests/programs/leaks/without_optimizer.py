"""No optimizer: steps are backward passes.

held by: global `kept[...]`
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


kept = []
for _ in range(8):
    x = torch.randn(16, 64)
    model(x).sum().backward()
    kept.append(x.neg())  # leaks
