"""memlab._core.MemReporter: instances, looks, names and errors, on tensors of the host."""

import sys

import leaks

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit()

from memlab import _core
from memlab._native import sources

sources.ensure("cpu")
KINDS = torch.Tensor, torch.nn.Parameter
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(3)).sum().backward()
optimizer.step()
kept = _core.MemReporter()
kept._watch_model(model, torch.Tensor)
kept._watch_optimizer(optimizer)


def looked():
    sparse = torch.eye(2).to_sparse()
    kept._collect(*KINDS)
    assert kept._devices()[0]["rows"][0]["name"] == "weight"
    return sparse


def dropped():
    reporter = _core.MemReporter()
    reporter._watch_model(model, torch.Tensor)
    reporter._watch_optimizer(optimizer)
    reporter._collect(*KINDS)
    return torch.ones(2)


def refused():
    for method, arguments in (
        (kept._collect, (torch.Tensor, 1)),
        (kept._watch_model, (1, torch.Tensor)),
        (kept._watch_optimizer, (1,)),
    ):
        try:
            method(*arguments)
        except TypeError:
            continue
        raise AssertionError("not refused")


leaks.check(_core.MemReporter, _core.MemReporter, (1_000, 20_000))
leaks.WARM_UP = 20
leaks.check(_core.MemReporter, looked, (150,))
leaks.check(_core.MemReporter, dropped, (150,))
leaks.check(_core.MemReporter, refused, (1_000,))
