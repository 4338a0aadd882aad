"""Recordings by MemorySnapshot as a trainer's callback, and the files that they leave."""

import warnings
from pathlib import Path

import memlab

SEGMENT = 0x7F0000000000


def snapshot(*args, **options):
    return memlab.MemorySnapshot(*args, source="script", **options)


def files(folder="."):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*.*"))


def batches(path):
    """The numbers of the batches that the recording at PATH is of."""
    events = memlab.load(str(path))["device_traces"][0]
    return [event["size"] // 512 - 1 for event in events if event["action"] == "alloc"]


def warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(warning.message) for warning in caught]
