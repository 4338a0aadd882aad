"""A function's own list, in its closure.

held by: closure variable `seen[...]`
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


def recorder():
    seen = []

    def record(tensor):
        seen.append(tensor.clone())  # leaks

    return record


record = recorder()
for _ in range(8):
    x = torch.randn(16, 64)
    record(x)
    step(x)
