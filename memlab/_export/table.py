"""memlab.Table: a table of a recording, column by column."""

from __future__ import annotations

import array
import functools
import itertools

from memlab import _core
from memlab._export import recording_tables as _tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pandas
    import polars
    import pyarrow

__all__ = ["Table"]


class Table:
    """A table of a recording: rows in columns, which docs/VIEWING.md describes.

        events = memlab.open("run.mlab").events()
        len(events), events.columns
        numpy.asarray(events["bytes"])
        events.to_pandas()
        duckdb.sql("SELECT action, count(*) FROM events GROUP BY action")

    A column of numbers is a buffer, which numpy takes without a copy; a column of texts is
    a list.  Whatever reads Arrow's C stream, as polars and duckdb do, reads a Table as it
    is, with pyarrow installed.
    """

    def __init__(self, recording: _core.Recording, name: str, device: int | None) -> None:
        if name not in _tables.TABLES:
            raise ValueError(f"no table {name!r}: there are {', '.join(_tables.TABLES)}")
        if device is not None:
            recording.device_name(device)  # raises for one that there is not
        self._recording = recording
        self.name = name
        self._device = device

    @functools.cached_property
    def _tables(self):
        return _tables.Tables(self._recording)

    @functools.cached_property
    def _parts(self):
        """(device, its columns) of each device."""
        return [
            (device, self._recording.columns(self.name, device or 0))
            for device in self._tables.devices(self.name, self._device)
        ]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order; of a recording without devices, none."""
        if not self._parts:
            return []
        device, columns = self._parts[0]
        return [*["device"] * (device is not None), _tables.ROW[self.name], *columns]

    def _counts(self):
        return [len(next(iter(columns.values()))) for _, columns in self._parts]

    def __len__(self) -> int:
        """The number of rows."""
        return sum(self._counts())

    def __getitem__(self, column: str) -> Sequence[Any]:
        """The values of COLUMN.  Raises KeyError, with the columns that there are, and
        TypeError for a row's number, by which iteration asks.
        """
        if not isinstance(column, str):
            raise TypeError(
                "a Table is columns, by their names, not rows: for rows, "
                "table.to_pandas().itertuples()"
            )
        if column not in self.columns:
            raise KeyError(f"{self.name} has {', '.join(self.columns)}; no {column!r}")
        if column == "device":
            counted = zip(self._parts, self._counts())
            return memoryview(
                b"".join(array.array("i", [part[0]]) * count for part, count in counted)
            ).cast("i")
        if column == _tables.ROW[self.name]:
            counts = self._counts()
            if len(counts) == 1:
                return range(counts[0])
            return memoryview(array.array("q", itertools.chain(*map(range, counts))))
        views = [columns[column] for _, columns in self._parts]
        if column in _tables.TEXTS:
            texts = self._tables.strings
        elif column in _core.COLUMN_TEXTS:
            texts = _core.COLUMN_TEXTS[column]
        else:
            return _joined(views, "?" if column in _tables.TRUTHS else views[0].format)
        return list(map(texts.__getitem__, itertools.chain(*views)))

    def to_arrow(self) -> pyarrow.Table:
        """As a table of pyarrow, with texts as dictionaries.  Raises memlab.Error without
        pyarrow.
        """
        pa = _tables.package("pyarrow", "a table of Arrow")
        found = list(
            _tables.arrow_tables(pa, self._recording, self._device, self.name)
        )
        return pa.concat_tables(found) if found else pa.table({})

    def to_pandas(self) -> pandas.DataFrame:
        """As a frame of pandas, with texts as categories.  Raises memlab.Error without
        pandas or pyarrow.
        """
        _tables.package("pandas", "a frame of pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """As a frame of polars, with texts as categories.  Raises memlab.Error without
        polars or pyarrow.
        """
        return _tables.package("polars", "a frame of polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<memlab.Table {self.name}: {len(self):,} rows of {', '.join(self.columns)}>"


def _joined(views, kind):
    """VIEWS as one buffer with items of KIND; of one, that one."""
    if len(views) == 1:
        return views[0] if kind == views[0].format else views[0].cast(kind)
    return memoryview(b"".join(views)).cast(kind)
