"""Each state refers to the one before it.

held by: `state
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


class State:
    def __init__(self, value, before):
        self.value = value
        self.before = before


state = None
for _ in range(8):
    x = torch.randn(16, 64)
    state = State(x + 1, state)  # leaks
    step(x)
