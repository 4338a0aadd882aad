"""Results that stay are made one by one, where tensors that come and go have been: each
takes a part of a segment, which those no longer fit."""

import sys

import torch


def main(mended):
    count, mib = 8, 1 << 18
    results = []
    torch.zeros(30 * mib, device="cuda")
    for _ in range(count):
        for _ in range(count - len(results) if mended else 1):
            results.append(torch.zeros(16 * mib, device="cuda"))  # waste
        torch.zeros(30 * mib, device="cuda")
    for result in results:
        result.add_(1)


if __name__ == "__main__":
    main("--mended" in sys.argv)
