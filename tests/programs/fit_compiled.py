"""Trains a net that torch.compile made."""

import torch


def main():
    net = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)
    )
    net = torch.compile(net.cuda())
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(100):
        net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
