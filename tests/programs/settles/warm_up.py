"""The first six steps make something each, which stays; six more make nothing."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


made = []
for i in range(12):
    x = torch.randn(16, 64)
    if i < 6:
        made.append(x.exp())
    step(x)
