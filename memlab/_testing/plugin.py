"""The implementation of pytest_memlab.py's fixture `memory`: a block's memory against
limits.

Owns the meaning of used and left-behind memory, the file of baselines, and the words of
a failure. Figures are the allocator's own, from a recording of the block.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import re

import pytest

from memlab import _core
from memlab._errors import Error
from memlab._native import sources
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._report import peaks
from memlab._text import wording

FILE = "memory_baselines.json"
_VERSION = 1
_EVENTS = 4_000_000
_LINES_SHOWN = 10
_LINES_KEPT = 100
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

# Of one run of pytest: "updates": baselines by name by file; "lower": sentences about
# baselines that could be lower; "failed": sentences about files that could not be
# written.
_found = pytest.StashKey[dict]()


def size(value: object, name: str) -> int:
    """Bytes from an int or a size such as "1.5 GiB"; NAME is the argument's."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = str(value).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None or isinstance(value, bool):
        raise ValueError(
            f"{name}: {value!r} is not a size; write a number of bytes, or for example '1.5 GiB'"
        )
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _allowance(tolerance, whole):
    """Bytes by which the peak may exceed WHOLE."""
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", str(tolerance).strip())
    if share is not None:
        return int(whole * float(share[1]) / 100)
    return size(tolerance, "tolerance")


class Memory:
    """The fixture: a call returns a Block."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._names: set[str] = set()

    def __call__(
        self,
        *,
        max: int | str | None = None,
        leaks: int | str | None = None,
        baseline: str | None = None,
        tolerance: int | str = 0,
        device: str | None = None,
    ) -> Block:
        """A block to check, as a context manager.  Raises ValueError for an invalid
        argument, memlab.Error if there is nothing to record.
        """
        if baseline is not None:
            if not isinstance(baseline, str) or not baseline:
                raise ValueError(f"baseline: {baseline!r} is not a name")
            if baseline in self._names:
                raise ValueError(f"this test has a baseline {baseline!r} already")
            self._names.add(baseline)
        _allowance(tolerance, 0)
        limits = [
            None if value is None else size(value, name)
            for name, value in (("max", max), ("leaks", leaks))
        ]
        return Block(self._request, *limits, baseline, tolerance, device)


class Block:
    """The memory of a finished block, on the device with the most: peak_bytes beyond
    the memory before it, and leaked_bytes that it allocated and did not free.
    """

    def __init__(self, request, max, leaks, baseline, tolerance, device) -> None:
        self.peak_bytes = 0
        self.leaked_bytes = 0
        self._request = request
        self._max = max
        self._leaks = leaks
        self._baseline = baseline
        self._tolerance = tolerance
        self._source, self._index = _place(device)
        self._snapshot = MemorySnapshot(
            source=self._source,
            device=self._index,
            max_entries=_EVENTS,
            source_lines=False,
        )

    def __enter__(self) -> Block:
        _prepare(self._source, self._index)
        gc.collect()
        self._snapshot.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            # Memory held only by a cycle is garbage, not a leak.
            gc.collect()
        self._snapshot.stop()
        if kind is None:
            self._check(self._snapshot.data())

    def _check(self, recording):
        __tracebackhide__ = True
        uses = [_Use(recording, i) for i in peaks.devices(recording)]
        uses = [use for use in uses if use.events]
        self.peak_bytes = max((use.peak_bytes for use in uses), default=0)
        self.leaked_bytes = max((use.leaked_bytes for use in uses), default=0)
        said = []
        for use in uses:
            said += use.lost()
            if self._max is not None and use.peak_bytes > self._max:
                said += use.above(self._max)
            if self._leaks is not None and use.leaked_bytes > self._leaks:
                said += use.leaked(self._leaks)
        if self._baseline is not None:
            said += self._compare(uses)
        if said:
            pytest.fail("\n".join(said))

    def _compare(self, uses):
        config = self._request.config
        path = os.path.join(os.path.dirname(str(self._request.path)), FILE)
        name = f"{os.path.basename(str(self._request.path))}::"
        name += f"{self._request.node.nodeid.partition('::')[2]}::{self._baseline}"
        now = {use.name: use.entry() for use in uses}
        known = read(path)
        if config.getoption("--memory-update"):
            entries = found(config)["updates"].setdefault(path, {})
            entries[name] = {"torch": _torch_version(), "devices": now}
            return []
        before = known.get(name)
        if before is None:
            return [
                f"there is no baseline {self._baseline!r} of this test in "
                f"{wording.shorten(path)}: pytest --memory-update writes it"
            ]
        said = []
        for use in uses:
            said += self._grown(use, before, name)
        return said

    def _grown(self, use, before, name):
        known = before["devices"].get(use.name)
        if known is None:
            return [
                f"the baseline {self._baseline!r} has nothing of {use.name}, but "
                f"{', '.join(sorted(before['devices'])) or 'no device'}: "
                "pytest --memory-update writes it anew"
            ]
        most = known["peak_bytes"] + _allowance(self._tolerance, known["peak_bytes"])
        if use.peak_bytes > most:
            return use.above_baseline(self._baseline, before, known, most)
        if use.peak_bytes < known["peak_bytes"]:
            found(self._request.config)["lower"].append(
                f"{name}: {use.peak_bytes} bytes, the baseline has {known['peak_bytes']}"
            )
        return []


# ---- Devices ----


def _place(device):
    if device is None:
        return sources.default(), None
    text = str(device)
    if text in ("cuda", "cpu", "script"):
        return text, None
    return sources.parse_device(text)


_prepared: set = set()


def _prepare(source, index):
    """A process's first matrix products, in the backward thread too, make workspaces of
    cuBLAS and cuBLASLt that stay.  They would count for the first test that runs.
    """
    if source != "cuda":
        return
    import torch

    device = torch.cuda.current_device() if index is None else index
    if device in _prepared:
        return
    _prepared.add(device)
    with torch.inference_mode(False), torch.enable_grad(), torch.cuda.device(device):
        one = torch.ones(16, 16, device=f"cuda:{device}", requires_grad=True)
        bias = torch.ones(16, device=f"cuda:{device}", requires_grad=True)
        torch.nn.functional.linear(one @ one, one, bias).sum().backward()
        torch.cuda.synchronize()


def _torch_version():
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


# ---- What a block used ----


class _Use:
    """On one device: bytes beyond those before, at the peak and at the end, and the
    lines of both, for the block's own allocations.
    """

    def __init__(self, recording, device):
        counts = recording.counts(device)
        self.events = counts["events"]
        self.name = recording.device_name(device)
        self._unseen = counts["overwritten_events"] + counts["dropped_events"]
        start = recording.peak(device, -1)["peak"]["allocated_bytes"]
        peak = recording.peak(device)
        end = recording.peak(device, self.events - 1)
        self.peak_bytes = peak["peak"]["allocated_bytes"] - start
        self._at_peak = _own(peak)
        self._at_end = _own(end)
        self.leaked_bytes = sum(group["bytes"] for group in self._at_end)

    def lost(self):
        if not self._unseen:
            return []
        return [
            f"{self._unseen} events of {self.name} are missing, so that its figures are too "
            "low: check shorter blocks"
        ]

    def above(self, most):
        yield f"{self.name}: {_bytes(self.peak_bytes)} at the peak, {_bytes(most)} allowed"
        yield "  lines that held them then:"
        yield from _table(self._at_peak)

    def leaked(self, most):
        yield (
            f"{self.name}: {_bytes(self.leaked_bytes)} left behind, {_bytes(most)} allowed"
        )
        yield "  lines that allocated them:"
        yield from _table(self._at_end)

    def entry(self):
        """The baseline's entry."""
        lines = {}
        for group in self._at_peak[:_LINES_KEPT]:
            key = _key(group)
            lines[key] = lines.get(key, 0) + group["bytes"]
        return {"peak_bytes": self.peak_bytes, "lines": lines}

    def above_baseline(self, baseline, before, known, most):
        grown = self.peak_bytes - known["peak_bytes"]
        yield (
            f"{self.name}: {_bytes(self.peak_bytes)} at the peak, {grown} bytes more than "
            f"the {_bytes(known['peak_bytes'])} of baseline {baseline!r}"
        )
        if most != known["peak_bytes"]:
            yield f"  {_bytes(most)} allowed with the tolerance"
        if before["torch"] != _torch_version():
            yield f"  the baseline is of torch {before['torch']}, here is {_torch_version()}"
        yield "  lines that hold more than then, or less:"
        now = self.entry()["lines"]
        changed = [
            (now.get(key, 0) - known["lines"].get(key, 0), key)
            for key in now.keys() | known["lines"].keys()
        ]
        changed = sorted((c for c in changed if c[0]), key=lambda c: (-abs(c[0]), c[1]))
        rows = [(f"{count:+d}", "bytes", wording.escape(key)) for count, key in changed]
        yield from wording.aligned(rows[:_LINES_SHOWN] or [("none of them",)], "    ")
        if len(rows) > _LINES_SHOWN:
            yield f"    ... and {len(rows) - _LINES_SHOWN} more lines"


def _own(answer):
    """The lines of the block's own allocations."""
    return [g for g in answer["by_line"] if g["phase"] != "before_recording"]


def _key(group):
    """A line by its text, not by its number, which every edit changes."""
    if not group["file"]:
        return f"({group['reason']})"
    place = os.path.basename(group["file"])
    code = linecache.getline(group["file"], group["line"]).strip()
    backward = " (backward)" if group["backward"] else ""
    return f"{place} {group['function']}: {code or group['line']}{backward}"


def _bytes(count):
    return f"{wording.size(count)} ({count} bytes)" if count >= 1024 else f"{count} bytes"


def _table(groups):
    rows = []
    for group in groups[:_LINES_SHOWN]:
        code = linecache.getline(group["file"], group["line"]).strip()
        place = wording.place(group, None) + (f"    {code}" if code else "")
        blocks = f"{group['blocks']} block{'s' if group['blocks'] != 1 else ''}"
        rows.append((str(group["bytes"]), "bytes", blocks, wording.escape(place)))
    yield from wording.aligned(rows or [("none",)], "    ")
    rest = groups[_LINES_SHOWN:]
    if rest:
        left = sum(group["bytes"] for group in rest)
        yield f"    ... and {len(rest)} more lines with {left} bytes"


# ---- Baselines ----


def read(path: str) -> dict:
    """The baselines in the file at PATH by name; none without the file.

    Raises memlab.Error for a file without baselines.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']!r}")
        for entry in content["baselines"].values():
            _check_entry(entry)
    except FileNotFoundError:
        return {}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise Error(
            f"{path} is not a file of memory baselines that this memlab reads ({error}): fix it, or "
            "remove it and run pytest --memory-update"
        ) from None
    return content["baselines"]


def _check_entry(entry):
    """Raises an error of any kind for an invalid entry."""
    counts = []
    for device in entry["devices"].values():
        counts += [device["peak_bytes"], *device["lines"].values()]
    if not isinstance(entry["torch"], str) or {type(count) for count in counts} - {int}:
        raise ValueError("an entry of another shape")


def found(config: pytest.Config) -> dict:
    """The findings of CONFIG's run, to be extended; plain data."""
    return config.stash.setdefault(_found, {"updates": {}, "lower": [], "failed": []})


def add(config: pytest.Config, more: dict) -> None:
    """Adds MORE, another process's findings, to those of CONFIG's run."""
    here = found(config)
    here["lower"] += more["lower"]
    for path, entries in more["updates"].items():
        here["updates"].setdefault(path, {}).update(entries)


def write(news: dict) -> bool:
    """Replaces baselines by NEWS' updates of the same names; returns whether all are
    written.
    """
    for path, entries in list(news["updates"].items()):
        try:
            content = {"version": _VERSION, "baselines": {**read(path), **entries}}
            text = json.dumps(content, indent=1, sort_keys=True) + "\n"
            _core.write_file(path, text.encode())
        except (Error, OSError) as error:
            del news["updates"][path]
            news["failed"].append(str(error))
    return not news["failed"]


def summary(news: dict) -> list[str]:
    """The report of NEWS at a run's end."""
    said = [
        f"memory baselines: {len(entries)} in {wording.shorten(path)}"
        for path, entries in sorted(news["updates"].items())
    ]
    if news["lower"]:
        said.append("memory baselines that are too high; pytest --memory-update lowers them:")
        said += [f"  {wording.escape(line)}" for line in news["lower"]]
    said += [f"memory baselines not written: {wording.escape(e)}" for e in news["failed"]]
    return said
