"""Exceptions are kept, with the locals of what raised them.

held by: local `big` of fail()
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


def fail():
    big = torch.ones(16, 64)  # leaks
    raise ValueError(big.shape)


errors = []
for _ in range(8):
    x = torch.randn(16, 64)
    try:
        fail()
    except ValueError as error:
        errors.append(error)
    step(x)
