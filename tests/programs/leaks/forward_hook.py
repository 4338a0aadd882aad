"""A forward hook collects what a layer gives.

held by: global `features[...]`
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


features = []
model[1].register_forward_hook(lambda module, inputs, out: features.append(out.detach()))
for _ in range(8):
    x = torch.randn(16, 64)
    loss = model(x).pow(2).mean()  # leaks
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
