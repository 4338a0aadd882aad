"""A copy of the weights follows them: in place, and one more made anew."""

import copy

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


average = copy.deepcopy(model)
for _ in range(10):
    step(torch.randn(16, 64))
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.data.lerp_(value.data, 0.1)
    last = {name: value.clone() for name, value in model.state_dict().items()}
