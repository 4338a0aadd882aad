"""memlab.MemReporter: the tensors that exist, and the memory of each."""

from __future__ import annotations

import functools
import gc
import os

from memlab import _core
from memlab._errors import Error
from memlab._native import linemaps, sources
from memlab._objects import holders as _holders
from memlab._text.line_text import readable_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import ReporterDevice, ReporterRow, Unheld

_ROW = "{:<40s}{:>20s}{:>10s}"
_LINE = "-" * 79
_DIFFERS = (
    "Memory differs due to the matrix alignment or invisible gradient buffer tensors"
)


class MemReporter(_core.MemReporter):
    """Shows the tensors that Python sees, by name, with the memory of each.

        reporter = memlab.MemReporter(model)
        reporter.report()

    model: a torch.nn.Module whose parameters and buffers give their names.
    pre_collect: collect garbage first, so that it is not shown.

    The search runs in C, and no code of the program runs meanwhile.  It keeps nothing
    alive: neither tensors, nor the model, nor an optimizer.
    """

    def __new__(cls, model: Any = None, pre_collect: bool = False) -> MemReporter:
        # Before the C part, which uses it to read tensors.
        sources.ensure("cpu")
        return super().__new__(cls)

    def __init__(self, model: Any = None, pre_collect: bool = False) -> None:
        import torch

        self.pre_collect = pre_collect
        self._answer: list[ReporterDevice] = []
        self._gpus: dict[str, tuple[Unheld, list[ReporterDevice] | None]] = {}
        self._why_not: str | None = None
        # A tensor without a name after a look for names gets none from another.
        self._gone: set[tuple[str, int, str]] = set()
        if model is not None:
            if not isinstance(model, torch.nn.Module):
                raise TypeError(
                    f"model must be a torch.nn.Module, not {type(model).__name__}"
                )
            self._watch_model(model, torch.Tensor)

    def add_optimizer(self, optimizer: Any) -> None:
        """From now on, names the state of OPTIMIZER by its parameters, as in
        "Adam.weight.exp_avg".
        """
        import torch

        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                "optimizer must be a torch.optim.Optimizer, not "
                f"{type(optimizer).__name__}"
            )
        self._watch_optimizer(optimizer)

    def collect_tensor(self) -> None:
        """Looks at all tensors, for get_stats()."""
        if self.pre_collect:
            gc.collect()
        self._gpus, self._why_not = {}, None
        indices = _gpus_in_use()
        for index in indices:
            self._collect_gpu(index, len(indices) > 1)
        if not self._gpus:
            self._look()

    def _look(self):
        import torch

        self._collect(torch.Tensor, torch.nn.Parameter)

    def _collect_gpu(self, index, more):
        """Looks at all tensors and the rest of a GPU's memory at one moment; MORE GPUs
        follow at other moments.
        """

        def claims():
            self._look()
            return self._claims(index)

        try:
            sources.ensure("cuda")
            unheld = _core.unheld("cuda", index, claims)
            if _unnamed(unheld) - self._gone:
                _name_modules()
                unheld = _core.unheld("cuda", index, claims)
                self._gone |= _unnamed(unheld)
        except Error as error:
            # Tensors can still be listed.
            self._why_not = str(error)
            return
        # Each with the tensors of its own moment.
        self._gpus[f"cuda:{index}"] = unheld, self._devices() if more else None

    def get_stats(self) -> None:
        """Makes the output of print_stats() from the results of collect_tensor()."""
        now = self._devices()
        by_name = {device["device"]: device for device in now}
        for name, (_, devices) in self._gpus.items():
            empty = {"device": name, "elements": 0, "used_bytes": 0, "rows": []}
            seen = now if devices is None else devices
            same = [device for device in seen if device["device"] == name]
            by_name[name] = (same or [empty])[0]
        for name, device in by_name.items():
            device["unheld"] = self._gpus[name][0] if name in self._gpus else None
        self._answer = sorted(by_name.values(), key=_place)

    def _hold(self, devices):
        """Adds the holders of each row without a name of its own, in one search."""
        import torch

        rows = [row for device in devices for row in device["rows"]]
        first: dict[str, ReporterRow] = {}
        for row in rows:
            row["holders"] = None
            if row["used_bytes"] > 0:
                # A part's holders are the tensor's: "Tensor0.values" belongs to
                # "Tensor0".
                first.setdefault(row["name"].partition(".")[0], row)
        names, tensors = self._nameless(torch.Tensor, set(first))
        for name, found in zip(names, _holders.find(tensors), strict=True):
            first[name]["holders"] = found

    def stats(self, device: object = None, *, holders: bool = False) -> list[ReporterDevice]:
        """Looks at all tensors; returns the rows, for each device or for one.

        device: an index, a torch.device, or a string such as "cuda:1", "cuda" or "cpu".
        holders: look for the holders of each tensor that no model or optimizer names.

        Returns a list of dicts of device, elements, used_bytes, rows (each a dict of
        name, sizes, elements, used_bytes, storage_bytes, shared_with and, if requested,
        holders) and unheld: for GPUs, a dict of allocated memory that no Python tensor
        holds; else None. memlab._answers.ReporterDevice describes them.  Raises
        ValueError for an invalid device.
        """
        target = _target(device)
        self.collect_tensor()
        self.get_stats()
        devices = _of(self._answer, target)
        if holders:
            self._hold(devices)
        return devices

    def print_stats(self, verbose: bool = False, target_device: object = None) -> None:
        """Prints the output of get_stats().

        verbose: show which tensors share another's memory.  target_device: show only
        this device, as in report().
        """
        devices = _of(self._answer, _target(target_device))
        # Unlike write(), does nothing where a program has no stdout.
        print(_text(devices, verbose, self._why_not), end="")

    def report(
        self, verbose: bool = False, device: object = None, *, holders: bool = False
    ) -> None:
        """Looks at all tensors and prints them.

        verbose: show which tensors share another's memory, as "bias(->weight)".
        device: show only this device: an index, a torch.device, or a string such as "cuda:1",
            "cuda" (the current one) or "cpu".  Raises ValueError for an invalid device.
        holders: below each tensor that no model or optimizer names, show its holders, by the
            shortest path, as memlab.holders() does; one search for all.
        """
        devices = self.stats(device, holders=holders)
        # Unlike write(), does nothing where a program has no stdout.
        print(_text(devices, verbose, self._why_not), end="")


def _target(device):
    """The name of DEVICE; None for all."""
    import torch

    if device is None:
        return None
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{device!r} is not a device: {error}") from error
    if device.type != "cuda":
        return str(device) if device.index else device.type
    begun = torch.cuda.is_initialized()
    index = device.index
    if index is None:
        index = torch.cuda.current_device() if begun else 0
    if begun and index >= (count := torch.cuda.device_count()):
        raise ValueError(f"there is no cuda:{index}, torch sees {count}")
    return f"cuda:{index}"


def _unnamed(unheld):
    """The rows whose module had no name when memory was read, and so has its type's."""
    return {
        (row["file"], row["line"], row["module"])
        for row in unheld["rows"]
        if row["module"].startswith("<")
    }


def _name_modules():
    import torch

    _core.name_modules(torch.nn.Module)
    linemaps.take()


def _of(devices, target):
    if target is None:
        return devices
    return [device for device in devices if device["device"] in (target, f"{target}:0")]


def _gpus_in_use():
    """The indices of GPUs with memory of torch's allocator."""
    import torch

    if not torch.cuda.is_initialized():
        return []
    return [
        i for i in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(i)
    ]


def _place(device):
    """The order of devices: cpu, GPUs, others."""
    kind, _, index = device["device"].partition(":")
    return ("cpu", "cuda", kind).index(kind), kind, int(index or 0)


def _text(devices, verbose, why_not):
    lines = [_ROW.format("Element type", "Size", "Used MEM")]
    for device in devices:
        lines += [_LINE, f"Storage on {device['device']}"]
        lines += _rows(device["rows"], verbose)
        lines += [_LINE, *_sums(device, why_not), _LINE]
    return "\n".join(lines) + "\n"


def _rows(rows, verbose):
    figures = functools.cache(_figures)  # many rows have the same
    for row in rows:
        name, first = row["name"], row["shared_with"]
        if verbose and first is not None:
            name = f"{name}(->{first})"
        yield f"{name:<40}{figures(row['sizes'], row['used_bytes'])}"
        if row.get("holders") is not None:
            yield from _below(_held(row["holders"]))


def _below(text):
    import textwrap

    # A path is one word, however long.
    return textwrap.wrap(
        text,
        len(_LINE),
        initial_indent=" " * 4,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _held(holders):
    """The nearest of HOLDERS in words, and the number of the others."""
    if not holders:
        return "nothing that could be found holds it"
    nearest = holders[0]
    # The sentences of these already have a verb.
    is_sentence = nearest.kind in ("cycle", "outside") or nearest.path.startswith(
        "autograd node"
    )
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    return f"{'' if is_sentence else 'held by '}{nearest}{more}"


def _figures(sizes, used):
    # Like pytorch_memlab, shows a tensor without dimensions as one with one.
    return f"{str(sizes or (1,)):>20}{readable_size(used):>10}"


def _sums(device, why_not):
    used, unheld, name = device["used_bytes"], device["unheld"], device["device"]
    yield f"Total Tensors: {device['elements']} \tUsed Memory: {readable_size(used)}"
    if unheld is not None:
        allocated = unheld["allocated_bytes"]
        yield f"The allocated memory on {name}: {readable_size(allocated)}"
        if used != allocated:
            yield _DIFFERS
            yield from _difference(unheld)
    elif name.startswith("cuda") and why_not is not None:
        yield f"What else there is on {name} cannot be told: {why_not}"


def _difference(unheld):
    """The lines that lead from tensors' memory to allocated, and from that to reserved
    memory.
    """
    if unheld["rows"]:
        yield "Held by no tensor that Python sees:"
    for row in unheld["rows"]:
        keeper = _keeper(row)
        blocks = f"  {row['blocks']} block{'s' * (row['blocks'] != 1)}"
        # A long name comes first, before the room for blocks.
        left = keeper + blocks.rjust(60 - len(keeper))
        yield f"{left}{readable_size(row['bytes']):>10s}"
    slack, outside = unheld["slack_bytes"], unheld["outside_bytes"]
    if slack:
        yield _ROW.format("Blocks larger than their tensors", "", readable_size(slack))
    if outside:
        yield _ROW.format("Not from torch's allocator", "", readable_size(-outside))
    if unheld["changed"]:
        yield "Memory changed while it was read: figures may not add up"
    yield (
        f"Reserved: {readable_size(unheld['reserved_bytes'])}, of it "
        f"cached: {readable_size(unheld['cached_bytes'])}, "
        f"awaiting free: {readable_size(unheld['awaiting_free_bytes'])}"
    )


def _keeper(row):
    """The holder of a row of memory without a tensor, or its origin."""
    place = row["reason"]
    if row["line"]:
        place = f"{os.path.basename(row['file'])}:{row['line']} {row['function']}"
    module = f" ({row['module']})" if row["module"] else ""
    if row["backward"] and row["line"]:
        # As in a report: made for the gradient of that line.
        module += " (backward)"
    keeper = row["keeper"]
    return (
        f"{keeper}: {place}{module}"
        if keeper and row["line"]
        else keeper or place + module
    )
