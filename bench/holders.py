"""What memlab.holders() costs on a heap of a million objects.

    python bench/holders.py [OBJECTS]

Prints the objects that the collector knows and the best of five searches: of a tensor whose
references are all met at once, of one that only a garbage cycle holds (which asks every
object a second time), and of a thousand tensors at a time.
"""

import gc
import json
import sys
import time

import torch

import memlab
from memlab._objects import holders


class Node:
    def __init__(self, value):
        self.value = value
        self.items = [value]


def best(function, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return round(min(times) * 1e3, 1)


def main():
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    gc.disable()
    nodes = [Node((i, str(i))) for i in range(max(0, wanted - 300_000) // 3)]
    tensors = [torch.ones(1) for _ in range(1000)]
    knot = Node(torch.ones(2))
    knot.self = knot
    lost = knot.value
    del knot
    result = {
        "objects": len(gc.get_objects()),
        "one_ms": best(lambda: memlab.holders(tensors[500])),
        "garbage_ms": best(lambda: memlab.holders(lost)),
        "thousand_ms": best(lambda: holders.find(list(tensors))),
        "nodes": len(nodes),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
