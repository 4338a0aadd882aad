"""Two nets in turn, as a GAN."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


other = torch.nn.Linear(32, 1)
judge = torch.optim.Adam(other.parameters())
for _ in range(10):
    made = model(torch.randn(16, 64))
    judge.zero_grad()
    other(made.detach()).mean().backward()
    judge.step()
    optimizer.zero_grad()
    other(made).mean().backward()
    optimizer.step()
