"""A report as HTML, for a cell of a notebook.

Every text is escaped.  Colours are those of the page around it, so it needs no style for
light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from memlab._report.parts import Heading, Listing, Part, Said

# Cells of numbers are to the right, as in text.
_NUMBER = ' style="text-align: right; white-space: nowrap"'
_NAME = ' style="text-align: left"'


def html(notes: Iterable[str], sections: Iterable[list[Part]]) -> str:
    """NOTES, sentences about the recording, and SECTIONS, as elements of a page."""
    said = [f"<p>{escape(note)}</p>" for note in notes]
    said += [_part(part) for parts in sections for part in parts]
    return "\n".join(said)


def _part(part):
    if isinstance(part, Heading):
        tag = "h4" if part.level == 1 else "h5"
        return f"<{tag}>{escape(part.text)}</{tag}>"
    if isinstance(part, Said):
        return f"<div>{escape(part.text)}</div>"
    if isinstance(part, Listing):
        return f"<pre>{escape(chr(10).join(part.lines))}</pre>"
    return _table(part)


def _table(part):
    rows = [_row("th", part.columns)] if part.headed else []
    rows += [_row("td", row) for row in part.rows]
    return f"<table>{''.join(rows)}</table>"


def _row(tag, row):
    *cells, last = row
    lines = last if isinstance(last, list) else [last]
    said = [f"<{tag}{_NUMBER}>{escape(cell.strip())}</{tag}>" for cell in cells]
    said.append(f"<{tag}{_NAME}>{'<br>'.join(map(escape, lines))}</{tag}>")
    return f"<tr>{''.join(said)}</tr>"
