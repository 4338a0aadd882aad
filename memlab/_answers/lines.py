"""Functions line by line."""

from typing import TypedDict


class LineFigures(TypedDict):
    """Memory while one line ran: bytes, except line and allocations."""

    line: int
    at_peak_bytes: int
    backward_bytes: int
    peak_bytes: int
    allocated_bytes: int
    left_bytes: int
    allocations: int


class FunctionLines(TypedDict):
    """Lines of the functions of one name in one file; user: the file is not a
    package's.
    """

    file: str
    function: str
    user: bool
    lines: list[LineFigures]


class Lines(TypedDict):
    """The lines in all of a recording's stacks."""

    start_time_us: int
    functions: list[FunctionLines]


class TableLine(LineFigures):
    """A line in a function's table; code None: its text is unknown."""

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
