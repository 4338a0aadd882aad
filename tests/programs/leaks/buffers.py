"""A module gets a buffer more in each step.

held by: `model.state
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


for i in range(8):
    x = torch.randn(16, 64)
    model.register_buffer(f"state{i}", x.sqrt(), persistent=False)  # leaks
    step(x)
