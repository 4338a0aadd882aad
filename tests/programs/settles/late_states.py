"""Layers are trained one after the other: their states come late."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


layers = [torch.nn.Linear(64, 64) for _ in range(8)]
optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()])
for i in range(12):
    for k, layer in enumerate(layers):
        layer.requires_grad_(k <= i)
    x = torch.randn(16, 64)
    for layer in layers:
        x = layer(x)
    optimizer.zero_grad()
    x.pow(2).mean().backward()
    optimizer.step()
