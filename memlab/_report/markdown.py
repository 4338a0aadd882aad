"""A report as Markdown, for a comment on a pull request.

Owns the conversion of its words to safe GitHub Markdown.  Names are code, with every
special character escaped, so that they mention nobody and link nothing.  Details are
folded, and the whole fits in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from memlab._report.parts import Heading, Listing, Part, Said

# GitHub's limit is 65,536.
MOST_CHARACTERS = 60_000
# Characters of a cell or of a line in a listing.
_MOST_OF_ONE = 400
# In names, and in memlab's own words, which begin no list and contain no address.
_SPECIAL = re.compile(r"[!-,.:-@\[-`{-~]")
_OWN = re.compile(r"[#$&*<>@\[-`{-~]")
_CUT = "The rest is left out: it has no room in a comment."
# Room for that note, and for closing what is folded.
_RESERVE = 200


def markdown(notes: Iterable[str], sections: Iterable[list[Part]]) -> str:
    """NOTES, sentences about the recording, and SECTIONS, as one text of at most
    MOST_CHARACTERS.
    """
    page = _Page()
    for note in notes:
        page.block(f"> {_own(note)}")
    for parts in sections:
        for part in parts:
            page.part(part)
        page.unfold()
    if page.full:
        page.lines += ["", _CUT]
    return "\n".join(page.lines).strip("\n") + "\n"


class _Page:
    """Lines, while there is room; after the first that has none, no more."""

    def __init__(self):
        self.lines = []
        self.full = False
        self._room = MOST_CHARACTERS - _RESERVE
        self._folded = False

    def _add(self, *lines):
        """Adds all of LINES or none; returns whether it did."""
        need = sum(len(line) + 1 for line in lines)
        self.full = self.full or need > self._room
        if not self.full:
            self.lines += lines
            self._room -= need
        return not self.full

    def block(self, *lines):
        """Adds LINES after an empty one; returns whether it did."""
        return self._add("", *lines)

    def unfold(self):
        if self._folded:
            self.lines += ["", "</details>"]
            self._folded = False

    def part(self, part):
        if isinstance(part, Heading):
            self._heading(part)
        elif isinstance(part, Said):
            self.block(_named(part))
        elif isinstance(part, Listing):
            self._listing(part.lines)
        else:
            self._table(part)

    def _heading(self, part):
        self.unfold()
        if part.detail:
            # Room for the end of the folded part is reserved from the start.
            self._room -= len("\n</details>\n")
            self._folded = self.block(f"<details><summary>{_named(part)}</summary>")
        else:
            self.block(("### " if part.level == 1 else "#### ") + _named(part))

    def _listing(self, lines):
        """LINES unchanged, in a fence that none of them can end."""
        ticks = (len(run) for line in lines for run in re.findall("`+", line))
        fence = "`" * max(3, 1 + max(ticks, default=0))
        self._room -= len(fence) + 1
        if self.block(fence + "text"):
            all(self._add(_cut(line)) for line in lines)
            self.lines.append(fence)

    def _table(self, part):
        rule = ["---:"] * (len(part.columns) - 1) + ["---"]
        show = _code if part.names else _own
        if self.block(_row(part.columns), _row(rule)):
            all(self._add(_table_row(row, show)) for row in part.rows)


def _table_row(row, show):
    *cells, last = row
    lines = last if isinstance(last, list) else [last]
    joined = "<br>".join(show(_cut(line)) for line in lines)
    return _row([*(_own(cell.strip()) for cell in cells), joined])


def _row(cells):
    return f"| {' | '.join(cells)} |"


def _cut(text):
    return text if len(text) <= _MOST_OF_ONE else text[:_MOST_OF_ONE] + " ..."


def _entity(match):
    return f"&#{ord(match[0])};"


def _own(text):
    """TEXT of memlab's own, rendered as written."""
    return _OWN.sub(_entity, text)


def _code(name):
    """NAME as code, in which no character has a meaning."""
    return f"<code>{_SPECIAL.sub(_entity, name)}</code>"


def _named(part):
    name = _code(_cut(part.name)) if part.name else ""
    return _own(part.before) + name + _own(part.after)
