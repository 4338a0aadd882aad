"""Rows by line, if the model is in a library: the program's line and, if it has much
memory, the model's own lines below it.

The C core has the figures (csrc/core/analysis/answers/inner_lines.h); this file owns
which lines are split, and their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import InnerLine, PeakLine

# Share of all bytes, over all phases.
_SHARE_TAKEN_APART = 0.2
_SAME = ("file", "line", "function")


class Row(NamedTuple):
    """LINE, or its part INNER; each has bytes, blocks, module and by_category."""

    line: PeakLine
    inner: InnerLine | None = None

    @property
    def figures(self) -> PeakLine | InnerLine:
        """The holder of the row's bytes."""
        return self.line if self.inner is None else self.inner

    @property
    def bytes(self) -> int:
        """Of the row."""
        return self.figures["bytes"]

    @property
    def code(self) -> PeakLine | InnerLine | None:
        """The line whose text is shown; None if the row is not one line."""
        if self.line["line"] != self.line["until_line"]:
            return None
        return self.figures

    def place(self, start: str | None = None) -> str:
        """The row's place, with paths relative to the folder START."""
        if self.inner is None or all(self.inner[key] == self.line[key] for key in _SAME):
            return wording.place({**self.line, "module": self.figures["module"]}, start)
        path = wording.of_package(wording.shorten(self.inner["file"], start))
        to = f"-> {path}:{self.inner['line']} {self.inner['function']}"
        return wording.place(
            {**self.line, "function": to, "module": self.inner["module"]}, start
        )


def rows(lines: Sequence[PeakLine], whole: int) -> list[Row]:
    """LINES, of WHOLE bytes together, most bytes first, some of them split; the sum
    stays the same.
    """
    sums: dict[tuple, int] = {}
    for line in lines:
        key = _key(line)
        sums[key] = sums.get(key, 0) + line["bytes"]
    made = []
    for line in lines:
        apart = line["inner"] and sums[_key(line)] >= _SHARE_TAKEN_APART * whole
        made += [Row(line, inner) for inner in line["inner"]] if apart else [Row(line)]
    return sorted(made, key=lambda row: -row.bytes)


def _key(line):
    return tuple(line[key] for key in _SAME)
