"""A recording's tables: columns from the core, by name, and the same for Arrow.

docs/VIEWING.md documents the tables.  Columns are buffers from the core and go on as such:
nothing here runs once per event.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator

from memlab import _core
from memlab._errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A device's tables have its index as their first column, and their rows are numbered.
TABLES = (
    "allocations",
    "events",
    "segments",
    "blocks",
    "steps",
    "notes",
    "stacks",
    "frames",
)
OF_DEVICE = ("allocations", "events", "segments", "blocks", "steps")
# The name of a row's number.
ROW = {
    "allocations": "allocation",
    "events": "event",
    "segments": "segment",
    "blocks": "block",
    "steps": "row",
    "notes": "note",
    "stacks": "stack",
    "frames": "frame",
}
TEXTS = {"file", "function", "module", "name", "metadata", "node"}
TRUTHS = {"backward", "exact", "small", "expandable"}


class Tables:
    """A recording's tables, as columns for the formats."""

    def __init__(self, recording):
        self.recording = recording
        columns = recording.columns("strings")
        offsets, self.bytes = columns["offsets"], columns["bytes"]
        self.offsets = offsets
        parts = map(self.bytes.__getitem__, map(slice, offsets, offsets[1:]))
        self.strings = list(map(str, parts, itertools.repeat("utf-8")))

    def devices(self, name, device):
        """The devices to write table NAME for: DEVICE, or all for None.  A table
        without a device is written once.
        """
        if name not in OF_DEVICE:
            return [None]
        return range(self.recording.device_count) if device is None else [device]

    def read(self, name, device):
        return self.recording.columns(name, device or 0)

    def values(self, columns, strings, *, signed):
        """The values of each of COLUMNS, with texts from STRINGS; SIGNED: none above
        2^63.
        """
        for name, view in columns.items():
            if name in TEXTS:
                yield map(strings.__getitem__, view)
            elif name in _core.COLUMN_TEXTS:
                yield map(_core.COLUMN_TEXTS[name].__getitem__, view)
            elif signed and view.format == "Q":
                yield view.cast("B").cast("q")
            else:
                yield view

    def rows(self, name, device, strings=None, *, signed=False):
        """The rows of table NAME of DEVICE, and its columns' names."""
        columns = self.read(name, device)
        count = len(next(iter(columns.values())))
        values = [range(count)]
        names = [ROW[name], *columns]
        if device is not None:
            values.insert(0, itertools.repeat(device, count))
            names.insert(0, "device")
        values += self.values(columns, strings or self.strings, signed=signed)
        return names, zip(*values)


# What to install for a package.
_INSTALLS = {
    "pyarrow": "'memlab[arrow]'",
    "ray": "'memlab[cluster]'",
    "pandas": "pandas",
    "polars": "polars",
}


def package(name: str, what: str) -> Any:
    """The package NAME, which WHAT needs.  Raises memlab.Error if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(
            f"{what} needs {name} ({error}): pip install {_INSTALLS[name]}"
        ) from None


_ARROW_TYPES = {"B": "uint8", "I": "uint32", "q": "int64", "Q": "uint64"}


def _arrow_column(pa, name, view, strings):
    kind = getattr(pa, _ARROW_TYPES[view.format])()
    column = pa.Array.from_buffers(kind, len(view), [None, pa.py_buffer(view)])
    if name in TEXTS:
        return pa.DictionaryArray.from_arrays(column.cast(pa.int32()), strings)
    if name in _core.COLUMN_TEXTS:
        texts = pa.array(_core.COLUMN_TEXTS[name], pa.string())
        return pa.DictionaryArray.from_arrays(column.cast(pa.int32()), texts)
    return column.cast(pa.bool_()) if name in TRUTHS else column


def _arrow_table(pa, tables, name, device, strings):
    columns = tables.read(name, device)
    count = len(next(iter(columns.values())))
    arrays = {
        column: _arrow_column(pa, column, view, strings)
        for column, view in columns.items()
    }
    arrays = {ROW[name]: pa.array(range(count), pa.int64()), **arrays}
    if device is not None:
        arrays = {"device": pa.array([device], pa.int32()).take(_zeros(pa, count)), **arrays}
    return pa.table(arrays)


def _zeros(pa, count):
    return pa.Array.from_buffers(pa.int8(), count, [None, pa.py_buffer(bytes(count))])


def arrow_tables(pa, recording, device, name) -> Iterator[Any]:
    """The table NAME of DEVICE as Arrow's; None: of each, one after the other."""
    tables = Tables(recording)
    strings = pa.LargeStringArray.from_buffers(
        len(tables.strings), pa.py_buffer(tables.offsets), pa.py_buffer(tables.bytes)
    ).cast(pa.string())
    for index in tables.devices(name, device):
        yield _arrow_table(pa, tables, name, index, strings)
