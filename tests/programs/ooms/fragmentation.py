"""Results that are kept lie between large free blocks, none of which a large request fits."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
batch = parser.parse_args().batch
mib = 1 << 18
kept = []
for _ in range(70):
    large = torch.empty(2 * batch, mib, device="cuda")
    del large
    kept.append(torch.empty(5 * batch // 4, mib, device="cuda"))
whole = torch.empty(60 * batch, mib, device="cuda")
