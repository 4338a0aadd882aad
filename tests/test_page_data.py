"""The page's data, read back by tests/page_reader.py and held against the answers of the
same recording."""

import collections
import gzip
import random
from pathlib import Path

import page_reader
import pytest

from memlab import _core

DATA = Path(__file__).with_name("data")


def recorded(name):
    return _core.Recording.from_bytes(gzip.decompress((DATA / name).read_bytes()))


def sums(page, device, event):
    """Bytes after EVENT by line, module and category, as Recording.peak() names them."""
    head = page.head
    text, kinds, lines = head["strings"], head["kinds"], head["lines"]
    by_line, by_module, by_category = (collections.Counter() for _ in range(3))
    for row in page.devices[device].rows:
        if row.allocated(event):
            kind = row.kind
            line = kinds["line"][kind]
            by_line[
                text[lines["file"][line]],
                lines["line"][line],
                text[lines["function"][line]],
                head["no_lines"][lines["no_line"][line]],
                head["phases"][kinds["phase"][kind]],
                head["hows"][kinds["how"][kind]],
            ] += row.bytes
            module = text[kinds["module"][kind]]
            by_module[module, head["no_modules"][kinds["no_module"][kind]]] += row.bytes
            by_category[head["categories"][kinds["category"][kind]]] += row.bytes
    return by_line, by_module, +by_category


def answered(recording, device, event):
    peak = recording.peak(device, event)
    keys = "file", "line", "function", "reason", "phase", "how"
    return (
        {tuple(line[key] for key in keys): line["bytes"] for line in peak["by_line"]},
        {(each["module"], each["reason"]): each["bytes"] for each in peak["by_module"]},
        {name: size for name, size in peak["by_category"].items() if size},
    )


def some_events(device, amount=12, seed=0):
    count = device.events
    chosen = random.Random(seed).sample(range(count), min(count, amount))
    return sorted({-1, 0, count - 1, device.head["peak"]["event"], *chosen})


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_rows_allocated_after_an_event_are_what_peak_answers(name):
    recording = recorded(f"{name}.pickle.gz")
    page = page_reader.Page(recording.page_data())
    for event in some_events(page.devices[0]):
        assert sums(page, 0, event) == answered(recording, 0, event)
