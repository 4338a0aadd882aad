"""A cache of keys grows by torch.cat, which needs the old one and the new one at once."""

import sys

import torch


def main(mended):
    steps, mib = 24, 1 << 18
    if mended:
        whole = torch.zeros(steps, mib, device="cuda")
    else:
        cache = torch.zeros(1, mib, device="cuda")
    for step in range(1, steps):
        keys = torch.zeros(1, mib, device="cuda")
        if mended:
            whole[step] = keys[0]
            cache = whole[: step + 1]
        else:
            cache = torch.cat([cache, keys])  # waste
        cache.sum()


if __name__ == "__main__":
    main("--mended" in sys.argv)
