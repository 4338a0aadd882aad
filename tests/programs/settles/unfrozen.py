"""Layers are unfrozen one a step, and zero_grad() keeps the memory of their gradients."""

import torch

layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(16)))
optimizer = torch.optim.Adam(layers[-1].parameters())
layers.requires_grad_(False)
for i in range(12):
    layers[-1 - i].requires_grad_(True)
    if i > 0:
        optimizer.add_param_group({"params": list(layers[-1 - i].parameters())})
    optimizer.zero_grad(set_to_none=False)
    layers(torch.randn(16, 64)).pow(2).mean().backward()
    optimizer.step()
