"""Nothing is trained: steps are calls of the model.

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
with torch.no_grad():
    for _ in range(8):
        kept.append(model(torch.randn(16, 64)))  # leaks
