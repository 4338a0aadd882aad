"""A list is emptied at the end of each epoch, and the last one has not ended."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


outputs = []
for i in range(24):
    if i % 9 == 0:
        outputs.clear()
    x = torch.randn(16, 64)
    outputs.append(model(x).detach())
    step(x)
