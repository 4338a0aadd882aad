"""Every second step leaves something.

held by: global `kept[...]`
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


kept = []
for i in range(13):
    x = torch.randn(16, 64)
    if i % 2 == 0:
        kept.append(x.cos())  # leaks
    step(x)
