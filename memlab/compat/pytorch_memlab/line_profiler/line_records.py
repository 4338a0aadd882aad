"""pytorch_memlab.line_profiler.line_records: the figures of lines, for code that reads
them by its names.
"""

from __future__ import annotations

from memlab._lines.lines import DEFAULT_COLUMNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from memlab._text.line_text import Tables
    from memlab.compat.pytorch_memlab.line_profiler.line_profiler import LineProfiler

__all__ = ["LineRecords", "RecordsDisplay"]


class LineRecords:
    """The records of a LineProfiler, as its _raw_line_records and _code_infos."""

    def __init__(self, raw_line_records: LineProfiler, code_infos: object = None) -> None:
        self._raw_line_records = raw_line_records
        self._code_infos = code_infos

    def display(
        self, func: Any = None, columns: Sequence[str] | None = DEFAULT_COLUMNS
    ) -> RecordsDisplay:
        """LineProfiler.display() of FUNC, with the figures.  Raises its errors."""
        columns = tuple(DEFAULT_COLUMNS if columns is None else columns)
        profiler = self._raw_line_records
        rows = {
            (profiler._functions[number][0], line): figures
            for number in profiler._chosen(func)
            for line, _, _, figures in profiler._rows(number, columns)
        }
        return RecordsDisplay(profiler.display(func, columns), Figures(rows, columns))


class Figures:
    """The figures of lines, as far as a pandas DataFrame of them is used.

    index: (function, line) of each row.  columns: their names.  values: a numpy array, NaN
    where a line has no figure.
    """

    def __init__(self, rows: dict[tuple[str, int], Any], columns: Sequence[str]) -> None:
        import numpy

        self.index = list(rows)
        self.columns = list(columns)
        values = [[float("nan") if f is None else f for f in row] for row in rows.values()]
        self.values = numpy.array(values, float).reshape(len(rows), len(self.columns))

    def __len__(self) -> int:
        return len(self.index)


class RecordsDisplay:
    """A table, as text and in notebooks; _line_records has its figures."""

    def __init__(self, tables: Tables, line_records: Figures) -> None:
        self._tables = tables
        self._line_records = line_records

    def __repr__(self) -> str:
        return repr(self._tables)

    def _repr_html_(self) -> str:
        return self._tables._repr_html_()
