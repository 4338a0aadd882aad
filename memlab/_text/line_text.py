"""Tables of lines as text and HTML, in pytorch_memlab's form.

Owns the look of tables.
"""

import ast
import collections
import html
import inspect
import os
import re
import sys

from memlab._errors import tell

# Seaborn's muted colours, one for each column.
_COLORS = (
    "#4878d0 #ee854a #6acc64 #d65f5f #956cb4 #8c613c #dc7ec0 #797979 #d5bb67 #82c6e2"
).split()
# rich's style of a figure, from this share of its column's maximum on.
_HEAT = ((0.9, "bold red"), (0.5, "yellow"), (0, "green"))


def readable_size(count) -> str:
    """COUNT bytes with two decimals, in the largest unit of which there is one: 1.00K.
    """
    if count != count:  # NaN
        return ""
    unit, size = "B", float(count)
    for larger in "KMGTP":
        if abs(size) < 1024:
            break
        unit, size = larger, size / 1024
    return f"{size:.2f}{unit}"


def _lines_above_def(source) -> int:
    """Number of decorator lines above the `def` in SOURCE."""
    indented = source[:1] != [line.lstrip() for line in source[:1]]
    try:
        body = ast.parse("if 1:\n" * indented + "".join(source)).body
    except (SyntaxError, ValueError):
        return 0
    function = body[0].body[0] if indented else body[0]
    return max(0, function.lineno - 1 - indented)


class Table:
    """One function's lines: its source, and values of the lines that ran."""

    def __init__(self, name, code, rows, columns, lines=()):
        """LINES: the file's, if known."""
        self.name = name
        self.place = f"{code.co_filename}:{code.co_firstlineno}"
        source, first = _source(code, lines)
        self.values = {}
        for line, calls, delta, figures in _with_def(rows, source, first):
            figures = iter(figures)
            own = {"calls": calls, "delta": delta}
            self.values[line] = [
                own[name] if name in own else next(figures) for name in columns
            ]
        last = max(self.values, default=first)
        missing = max(0, last - first + 1 - len(source))
        self.lines = list(enumerate(source + ["\n"] * missing, first))


def _source(code, lines):
    """(the lines of CODE, the first one's number), from the LINES of its file."""
    first = code.co_firstlineno
    try:
        if not lines:
            # For example in an archive, where only the loader can read it.
            return inspect.getsourcelines(code)
        if code.co_name == "<module>":
            return lines, 1
        return inspect.getblock(lines[first - 1 :]), first
    except Exception:
        # The code was never in a file, or the file has changed since.
        return [], first


def _with_def(rows, source, first):
    """ROWS with a call's start moved to the line of `def`: Python assigns it to the
    first decorator.
    """
    above = _lines_above_def(source) if source else 0
    if not above or not rows or rows[0][0] != first:
        return rows
    (_, calls, delta, figures), *rest = rows
    if rest and rest[0][0] == first + above:
        # The body is in that line too.
        (_, inner_calls, inner_delta, inner), *rest = rest
        calls, delta = max(calls, inner_calls), delta + inner_delta
        figures = tuple(map(max, figures, inner))
    return [(first + above, calls, delta, figures), *rest]


def _is_bytes(column):
    return column == "delta" or "byte" in column


def _cell(column, value):
    if value is None:
        return ""
    return readable_size(value) if _is_bytes(column) else str(value)


def _headers(columns):
    """Three rows of headers, those of "line" and "code" last."""
    parts = [(name.split(".") + ["", ""])[:3] for name in columns]
    return list(zip(*parts, ("line", "", ""), ("code", "", ""), strict=True))


class Tables:
    """display()'s result: text by print() and repr(), HTML in a notebook."""

    def __init__(self, tables, columns, notes=(), why_not=""):
        """NOTES: sentences about the figures, shown below.  WHY_NOT: why a function has no
        table, if that is known.
        """
        self._tables = tables
        self._columns = columns
        self._why_not = why_not
        self._seen = False
        self._notes = [*notes, *filter(None, [why_not])]
        # By column the maximum over all tables, which is a full bar.
        self._most = [
            max(values[i] for table in tables for values in table.values.values())
            for i in range(len(columns) if tables else 0)
        ]
        named = collections.Counter(table.name for table in tables)
        self._titles = [
            table.name if named[table.name] == 1 else f"{table.name} ({table.place})"
            for table in tables
        ]

    def __bool__(self):
        return bool(self._tables)

    def __del__(self):
        """Of a script that calls display() as in a notebook."""
        if self._tables and not self._seen and not _is_shown_by_itself():
            tell(
                "display() gives the tables, and a script does not show them: call "
                "print_stats(), or print(profiler.display())"
            )

    def __repr__(self):
        return "".join(text for text, _ in self.pieces())

    def pieces(self):
        """The text in pieces, each with its style as for rich: (text, style)."""
        self._seen = True
        if not self._tables:
            yield f"{self._nothing()}\n", ""
            return
        for number, (title, table) in enumerate(zip(self._titles, self._tables)):
            yield ("\n\n" if number else "") + "## ", "dim"
            yield title, "bold"
            yield "\n\n", ""
            yield from self._text(table)
        for note in self._notes:
            yield f"\n{note}\n", "bold"

    def _nothing(self):
        return f"No data collected: {self._why_not}" if self._why_not else "No data collected"

    def _rows(self, table):
        """By line: its values, their texts, its number as text and its code."""
        nothing = [None] * len(self._columns)
        for line, code in table.lines:
            values = table.values.get(line, nothing)
            texts = [_cell(*pair) for pair in zip(self._columns, values, strict=True)]
            yield values, texts, str(line), code.rstrip("\r\n")

    def _text(self, table):
        headers, rows = _headers(self._columns), list(self._rows(table))
        cells = [[*texts, line] for _, texts, line, _ in rows]
        widths = [
            max(map(len, column))
            for column in zip(*(header[:-1] for header in headers), *cells, strict=True)
        ]
        # pytorch_memlab counts the newline: hence the blank at the end.
        code_width = max(len(code) for code in ["code", *(c for _, c in table.lines)])

        def row(texts, styles, code):
            for text, width, style in zip(texts, widths, styles, strict=True):
                yield text.rjust(width), style
                yield " ", ""
            yield " " + code.ljust(code_width) + "\n", ""

        for *texts, code in headers:
            yield from row(texts, ["dim"] * len(widths), code)
        for values, texts, line, code in rows:
            styles = [_heat(*pair) for pair in zip(values, self._most, strict=True)]
            yield from row([*texts, line], [*styles, "dim"], code)

    def _repr_html_(self):
        self._seen = True
        if not self._tables:
            return f"<p>{html.escape(self._nothing())}</p>"
        parts = list(map(self._html, self._titles, self._tables))
        parts += [f"<p>{html.escape(note)}</p>" for note in self._notes]
        return "\n".join(parts)

    def _html(self, title, table):
        head = []
        for headers in _headers(self._columns):
            cells = (
                f'<th style="text-align: left">{html.escape(h)}</th>' for h in headers
            )
            head.append(f"<tr>{''.join(cells)}</tr>")
        body = []
        for values, texts, line, code in self._rows(table):
            cells = [
                f'<td style="{_bar(i, value, self._most[i])}">{text}</td>'
                for i, (value, text) in enumerate(zip(values, texts, strict=True))
            ]
            style = "text-align: left; white-space: pre; font-family: monospace"
            cells.append(f"<td>{line}</td>")
            cells.append(f'<td style="{style}">{html.escape(code)}</td>')
            body.append(f"<tr>{''.join(cells)}</tr>")
        return (
            f'<h3><span style="font-family: monospace">{html.escape(title)}</span></h3>'
            f'<div style="overflow-x: auto"><table><thead>{"".join(head)}</thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


def _is_shown_by_itself():
    """Whether an interpreter shows the value of a line; or it ends, and nothing can be told."""
    return hasattr(sys, "ps1") or sys.is_finalizing()


def _heat(value, most):
    """The style of a cell with VALUE in a column with the maximum MOST."""
    if value is None:
        return ""
    if value <= 0:
        return "dim"
    return next(style for part, style in _HEAT if value >= part * most)


def _bar(column, value, most):
    """The style of a cell with a bar as long as VALUE's share of MOST.  The bar is
    below the text, whose colour the notebook's theme decides.
    """
    style = "width: 10em; padding-bottom: 6px"
    if value is None or value <= 0:
        return style
    color, part = _COLORS[column % len(_COLORS)], f"{99 * value / most:.1f}%"
    return (
        f"{style}; background: linear-gradient(90deg, {color} {part}, transparent {part})"
        " 0 100% / 100% 4px no-repeat"
    )


def write(tables, stream) -> None:
    """Writes TABLES as text, in colour on a terminal if rich is installed.  Nothing if STREAM
    is None, which is sys.stdout where a program has none, as print() does.
    """
    tables._seen = True
    if stream is None:
        return
    text = _coloured(tables, stream) or repr(tables)
    if _is_terminal(stream):
        # Blanks beyond the terminal's width would show as empty lines.
        text = re.sub(" +$", "", text, flags=re.MULTILINE)
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # Source may contain characters that the stream lacks.
        known = text.encode(stream.encoding, "backslashreplace")
        stream.write(known.decode(stream.encoding))


def _is_terminal(stream):
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        # An object that only has write(), or a closed file.
        return False


def _coloured(tables, stream):
    """The text with the terminal's codes; None: without colour."""
    if os.environ.get("NO_COLOR"):
        return None
    try:
        if not _is_terminal(stream):
            return None
        from rich.console import Console
        from rich.segment import Segment, Segments
        from rich.style import Style

        console = Console(file=stream)
        pieces = [
            Segment(text, Style.parse(style) if style else None)
            for text, style in tables.pieces()
        ]
        with console.capture() as captured:
            console.print(Segments(pieces), end="", soft_wrap=True)
        return captured.get()
    except Exception:
        # A table must not fail for its colour: rich may be missing, broken or of
        # another version.
        return None
