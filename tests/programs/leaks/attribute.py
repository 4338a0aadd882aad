"""A module remembers all that it was given.

held by: `net.history[...]`
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


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
        self.history = []

    def forward(self, x):
        out = self.inner(x)  # leaks
        self.history.append(out.detach())
        return out


net = Net()
for _ in range(8):
    loss = net(torch.randn(16, 64)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
