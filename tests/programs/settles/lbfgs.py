"""L-BFGS keeps its last steps and gradients in lists, which its history_size ends."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2, history_size=100)
x = torch.randn(16, 64)


def closure():
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss


for _ in range(24):
    optimizer.step(closure)
