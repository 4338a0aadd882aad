"""Another process has half of the GPU."""

import argparse
import subprocess
import sys

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=45000)
batch = parser.parse_args().batch
OTHER = "import torch; x = torch.empty(12 << 30, dtype=torch.uint8, device='cuda'); print(1, flush=True); input()"
other = subprocess.Popen(
    [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
other.stdout.readline()
try:
    net = nn.Sequential(*[nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(12)])
    net = net.cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        x = torch.zeros(batch, 4096, device="cuda")
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
finally:
    other.communicate(b"\n")
