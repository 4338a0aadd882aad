"""Sums a program's parameters with torch alone, beside the program: Python imports this
module by itself, in each process, where its folder is on the path.

Each process keeps the largest sums of each GPU in a file of its own of the folder that
PARAMETERS names: [bytes of the elements, bytes of the blocks of torch's allocator that they
are in].  What counts is parameters() of each module that was called and is in no other that
was called before; of a DTensor this rank's part.
"""

from __future__ import annotations

import bisect
import json
import os
import weakref
from pathlib import Path

import torch

_roots: list[weakref.ref[torch.nn.Module]] = []
_seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
_most: dict[int, list[int]] = {}  # by GPU


def _places() -> dict[int, dict[int, int]]:
    """By GPU, the bytes at each address; what several modules share counts once."""
    places: dict[int, dict[int, int]] = {}
    for root in filter(None, (ref() for ref in _roots)):
        for parameter in root.parameters():
            local = getattr(parameter, "_local_tensor", parameter).detach()
            if local.is_cuda and local.numel():
                size = local.numel() * local.element_size()
                places.setdefault(local.device.index, {})[local.data_ptr()] = size
    return places


def _blocks(gpu: int, addresses: list[int]) -> int:
    """Bytes of the blocks that ADDRESSES are in."""
    starts, sizes = [], []
    for segment in torch.cuda.memory_snapshot():
        at = segment["address"]
        for block in segment["blocks"] if segment["device"] == gpu else []:
            starts.append(at)
            sizes.append(block["size"])
            at += block["size"]
    order = sorted(range(len(starts)), key=starts.__getitem__)
    ranked = [starts[at] for at in order]
    found = {order[bisect.bisect_right(ranked, address) - 1] for address in addresses}
    return sum(sizes[at] for at in found)


def _look() -> None:
    changed = False
    for gpu, places in _places().items():
        size = sum(places.values())
        if size > _most.get(gpu, [0])[0]:
            _most[gpu] = [size, _blocks(gpu, list(places))]
            changed = True
    if changed:
        path = Path(os.environ["PARAMETERS"]) / f"{os.getpid()}.json"
        path.write_text(json.dumps(_most))


def _called(module: torch.nn.Module, inputs: object) -> None:
    if module not in _seen:
        _seen.update(module.modules())
        _roots.append(weakref.ref(module))
        _look()


torch.nn.modules.module.register_module_forward_pre_hook(_called)
torch.optim.optimizer.register_optimizer_step_pre_hook(lambda *of: _look())
