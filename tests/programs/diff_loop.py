"""Plain tensors trained in a loop, without modules."""

import torch

import memlab

ROWS = 512
COLUMNS = 1024
STEPS = 3


def make_batch():
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    noise = torch.randn(ROWS, COLUMNS, device="cuda")
    noise.mul_(0.1)
    x = x + noise
    del noise
    return x


def mixed(weight, x):
    a = x @ weight
    b = torch.sin(a)
    c = b * x
    d = torch.exp(c)
    return d


def loss_of(weight, x):
    out = mixed(weight, x)
    squares = out * out
    return squares.mean()


def report(weight, x):
    with torch.no_grad():
        scores = mixed(weight, x)
        best = scores.max()
    return best


def train(weight, optimizer):
    losses = []
    for _ in range(STEPS):
        x = make_batch()
        loss = loss_of(weight, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        del loss
    return losses


def main():
    weight = torch.randn(COLUMNS, COLUMNS, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    train(weight, optimizer)
    with memlab.phase("report"):
        report(weight, make_batch())


main()
