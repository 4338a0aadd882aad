"""Each output is in a reference cycle, and garbage is not collected.

held by: a reference cycle
since step: 0
"""

import gc

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Result:
    def __init__(self, output):
        self.output = output
        self.itself = self


def main():
    for _ in range(10):
        x = torch.randn(16, 64)
        out = model(x)  # leaks
        Result(out.detach())
        optimizer.zero_grad()
        out.pow(2).mean().backward()
        optimizer.step()


gc.collect()
gc.disable()
main()
gc.enable()
