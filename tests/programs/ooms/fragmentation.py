"""Results that are kept lie between large free blocks, none of which a large request fits."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=128)
batch = parser.parse_args().batch
mib = 1 << 18
made = [torch.empty(batch + i % 2 * batch, mib, device="cuda") for i in range(108)]
kept = [torch.empty(batch // 8, mib, device="cuda") for _ in range(4)]
del made[1::2]
kept += [torch.empty(batch // 2, mib, device="cuda") for _ in range(54)]
whole = torch.empty(32 * batch, mib, device="cuda")
