"""Rows by line, where the model is in a library: the program's line and, where that holds
much, the model's own lines to which it leads.

The figures are the C core's (csrc/core/analysis/answers/inner_lines.h); this file owns which
lines are taken apart, and their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import InnerLine, PeakLine

# Of all bytes, over all phases.
_SHARE_TAKEN_APART = 0.2
_SAME = ("file", "line", "function")


class Row(NamedTuple):
    """LINE, or its part INNER; of either bytes, blocks, module and by_category."""

    line: PeakLine
    inner: InnerLine | None = None

    @property
    def figures(self) -> PeakLine | InnerLine:
        """What has the row's bytes."""
        return self.line if self.inner is None else self.inner

    @property
    def bytes(self) -> int:
        """Of the row."""
        return self.figures["bytes"]

    @property
    def code(self) -> PeakLine | InnerLine | None:
        """The line whose text tells most; None where it is not one line."""
        if self.line["line"] != self.line["until_line"]:
            return None
        return self.figures

    def place(self, start: str | None = None) -> str:
        """Where it is, paths relative to the folder START."""
        if self.inner is None or all(self.inner[key] == self.line[key] for key in _SAME):
            return wording.place({**self.line, "module": self.figures["module"]}, start)
        to = inner_place(self.inner, start)
        return wording.place(
            {**self.line, "function": to, "module": self.inner["module"]}, start
        )


def inner_place(inner, start: str | None = None) -> str:
    """The model's own line INNER behind the one that leads to it; paths relative to the
    folder START."""
    return f"-> {wording.near(inner['file'], start)}:{inner['line']} {inner['qualname']}"


def rows(lines: Sequence[PeakLine], whole: int) -> list[Row]:
    """LINES, of WHOLE bytes together, the most bytes first; they add up to the same."""
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
