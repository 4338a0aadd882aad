"""A teacher that no optimizer has, still there at the end, saves a graph and gets gradients."""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x


def main(mended):
    global teacher, student
    teacher, student = Net(1024, 8).cuda(), Net(1024, 2).cuda()
    teacher.requires_grad_(not mended)
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for _ in range(3):
        batch = torch.zeros(4096, 1024, device="cuda")
        answer = student(batch)
        lesson = teacher(batch)  # waste
        optimizer.zero_grad()
        nn.functional.mse_loss(answer, lesson).backward()
        optimizer.step()


if __name__ == "__main__":
    main("--mended" in sys.argv)
