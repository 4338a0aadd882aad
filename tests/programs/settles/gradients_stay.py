"""zero_grad() keeps the memory of gradients, and of averages of them."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


averages = [torch.zeros_like(parameter) for parameter in model.parameters()]
for _ in range(10):
    model(torch.randn(16, 64)).pow(2).mean().backward()
    for average, parameter in zip(averages, model.parameters(), strict=True):
        average.mul_(0.9).add_(parameter.grad, alpha=0.1)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
