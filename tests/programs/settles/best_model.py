"""The best weights so far replace those before them."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


best = None
for _ in range(10):
    step(torch.randn(16, 64))
    best = {name: value.clone() for name, value in model.state_dict().items()}
