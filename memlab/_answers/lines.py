"""Functions line by line."""

from typing import TypedDict


class LineFigures(TypedDict):
    """What memory did while one line ran: bytes, but for line and allocations."""

    line: int
    at_peak_bytes: int
    backward_bytes: int
    peak_bytes: int
    allocated_bytes: int
    left_bytes: int
    allocations: int


class FunctionLines(TypedDict):
    """Those of the functions of one name in one file; user: the file is no package's."""

    file: str
    function: str
    user: bool
    lines: list[LineFigures]


class Lines(TypedDict):
    """Those of all lines of a recording's stacks."""

    start_time_us: int
    functions: list[FunctionLines]


class TableLine(LineFigures):
    """A line as tables of functions have it; code None: its text is not known."""

    code: str | None


class LineTable(TypedDict):
    """The lines of one function; source is "read", "newer", "differs", "missing" or
    "absent"."""

    file: str
    function: str
    first_line: int
    last_line: int
    source: str
    own_bytes: int
    lines: list[TableLine]
