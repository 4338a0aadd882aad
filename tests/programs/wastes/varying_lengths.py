"""Sequences get longer, and each length leaves cache that the next one cannot use; mended
by PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."""

import sys

import torch
from torch import nn


def main(mended):
    if mended:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    layers = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
    for length in range(6000, 14000, 1000):
        layers(torch.zeros(length, 1024, device="cuda")).sum().backward()
        layers.zero_grad()


if __name__ == "__main__":
    main("--mended" in sys.argv)
