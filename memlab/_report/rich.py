"""A report in colour on a terminal, by rich: tables with wrapped columns and bars.

Owns the colours; _report/parts.py has the words.
"""

from __future__ import annotations

import os

from memlab._report.parts import Heading, Listing, Said
from memlab._text import terminal, wording

# In columns of the terminal.  A table's last column wraps, but is at least this wide.
_INDENT, _GAP, _BAR, _LEAST_LAST = 2, 2, 12, 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Colours, from this share on.
_HEAT = ((0.5, "bold red"), (0.1, "yellow"), (0, "green"))


def coloured(notes, sections, stream) -> str | None:
    """NOTES and SECTIONS (lists of parts) with the terminal's codes, as wide as STREAM;
    None without colour: no terminal, NO_COLOR, or no rich.
    """
    if os.environ.get("NO_COLOR"):
        return None
    try:
        if stream is None or not stream.isatty():
            return None
        from rich.console import Console
        from rich.text import Text

        console = Console(file=stream, highlight=False, markup=False, emoji=False)
        with console.capture() as captured:
            for note in notes:
                console.print(Text(note, "yellow"))
            for number, parts in enumerate(sections):
                if number:
                    console.print()
                for part in parts:
                    _print(console, part)
        return captured.get()
    except ImportError:
        # A report must not fail for its colour: rich may be missing, or of another
        # version.
        return None


def _print(console, part):
    from rich.padding import Padding
    from rich.text import Text

    if isinstance(part, Heading):
        if part.level == 2:
            console.print()
        console.print(Text(part.text, "bold" if part.level == 1 else "bold cyan"))
    elif isinstance(part, Said):
        _print_lines(console, ["  " + part.text])
    elif isinstance(part, Listing):
        _print_lines(console, part.lines)
    elif (bars := _bars(part, console.width)) is None:
        _print_lines(console, wording.aligned(part.lines()))
    else:
        table = _table(part, bars, console.encoding)
        console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _print_lines(console, lines):
    from rich.text import Text

    for line in lines:
        console.print(Text(terminal.fit(line, console.width)))


def _bars(part, width):
    """Whether the Table PART has room for bars in WIDTH columns; None: not even without
    bars.
    """
    widths = [max(len(row[i]) for row in part.lines()) for i in range(len(part.columns) - 1)]
    need = _INDENT + sum(width + _GAP for width in widths) + _LEAST_LAST
    if need > width:
        return None
    return bool(part.counts) and need + _BAR + _GAP <= width


def _table(part, bars, encoding):
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    for number in range(len(part.columns) - 1):
        table.add_column(justify="right", no_wrap=True)
        if number == 1 and bars:
            table.add_column(no_wrap=True, width=_BAR)
    table.add_column(overflow="fold")
    for number, row in enumerate(part.lines()):
        *cells, last = row
        lines = last if isinstance(last, list) else [last]
        shown = [Text(cell) for cell in cells]
        if part.counts:
            portion = part.counts[number] / part.whole if part.whole else 0
            style = next(style for least, style in _HEAT if portion >= least)
            shown[0].stylize("bold")
            shown[1].stylize(style)
            if bars:
                shown.insert(2, Text(_bar(portion, encoding), style))
        table.add_row(*shown, Text("\n").join(map(Text, lines)))
    return table


def _bar(portion, encoding):
    """A bar as long as PORTION, of 1."""
    eighths = min(round(portion * _BAR * 8), _BAR * 8)
    bar = _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    try:
        bar.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return "#" * round(eighths / 8)
    return bar
