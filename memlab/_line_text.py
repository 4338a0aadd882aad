"""Tables of lines as text and HTML, in the form that pytorch_memlab gave them."""

import html
import inspect

# Seaborn's muted colours, one a column.
_COLORS = (
    "#4878d0 #ee854a #6acc64 #d65f5f #956cb4 #8c613c #dc7ec0 #797979 #d5bb67 #82c6e2"
).split()


def readable_size(count) -> str:
    """COUNT bytes with two decimals in the largest unit of which there is one: 1.00K."""
    unit, size = "B", float(count)
    for larger in "KMGTP":
        if abs(size) < 1024:
            break
        unit, size = larger, size / 1024
    return f"{size:.2f}{unit}"


class Table:
    """The lines of one function: its source, and values where a line ran."""

    def __init__(self, name, code, rows, columns):
        self.name = name
        try:
            source, first = inspect.getsourcelines(code)
        except (OSError, TypeError, IndexError):
            source, first = [], code.co_firstlineno
        self.source = source
        self.values = {}
        for line, calls, delta, figures in rows:
            figures = iter(figures)
            own = {"calls": calls, "delta": delta}
            self.values[line] = [
                own[name] if name in own else next(figures) for name in columns
            ]
        last = max(self.values, default=first)
        # A file that changed since, or code that was never in one.
        missing = max(0, last - first + 1 - len(source))
        self.lines = list(enumerate(source + ["\n"] * missing, first))


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
    """What display() gives: text by print() and repr(), HTML in a notebook."""

    def __init__(self, tables, columns, lost):
        self._tables = tables
        self._columns = columns
        self._lost = lost

    def __bool__(self):
        return bool(self._tables)

    def __repr__(self):
        if not self._tables:
            return "No data collected\n"
        text = "\n\n".join(
            f"## {table.name}\n\n{self._text(table)}\n" for table in self._tables
        )
        return text + (f"\n{self._lost_text()}\n" if self._lost else "")

    def _lost_text(self):
        return (
            f"{self._lost} runs of lines have no figures: too many threads ran profiled "
            "functions at once, or memory was short"
        )

    def _cells(self, table):
        """A row of texts for each line, code last."""
        for line, code in table.lines:
            values = table.values.get(line, [None] * len(self._columns))
            cells = [_cell(*pair) for pair in zip(self._columns, values, strict=True)]
            yield [*cells, str(line), code.rstrip("\r\n")]

    def _text(self, table):
        headers, rows = _headers(self._columns), list(self._cells(table))
        widths = [max(map(len, column)) for column in zip(*headers, *rows, strict=True)]
        widths[-1] = max(len("code"), *(len(code) for _, code in table.lines))
        lines = []
        for cells in [*headers, *rows]:
            right = [text.rjust(width) for text, width in zip(cells, widths, strict=True)]
            lines.append(" ".join([*right[:-1], " " + cells[-1].ljust(widths[-1])]))
        return "\n".join(lines)

    def _repr_html_(self):
        if not self._tables:
            return "<p>No data collected</p>"
        most = [
            max(values[i] for table in self._tables for values in table.values.values())
            for i in range(len(self._columns))
        ]
        parts = [self._html(table, most) for table in self._tables]
        if self._lost:
            parts.append(f"<p>{html.escape(self._lost_text())}</p>")
        return "\n".join(parts)

    def _html(self, table, most):
        rows = []
        for headers in _headers(self._columns):
            cells = (f'<th style="text-align: left">{html.escape(h)}</th>' for h in headers)
            rows.append(f"<tr>{''.join(cells)}</tr>")
        body = []
        for (line, code), cells in zip(table.lines, self._cells(table), strict=True):
            values = table.values.get(line, [None] * len(self._columns))
            shown = [
                f"<td{_bar(i, value, most[i])}>{html.escape(cells[i])}</td>"
                for i, value in enumerate(values)
            ]
            style = "text-align: left; white-space: pre; font-family: monospace"
            shown.append(f"<td>{line}</td>")
            shown.append(f'<td style="{style}">{html.escape(code.rstrip())}</td>')
            body.append(f"<tr>{''.join(shown)}</tr>")
        return (
            f'<h3><span style="font-family: monospace">{html.escape(table.name)}</span></h3>'
            f"<div><table><thead>{''.join(rows)}</thead>"
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )


def _bar(column, value, most):
    """The style of a cell whose bar fills what part VALUE is of MOST."""
    if value is None or value <= 0 or most <= 0:
        return ""
    color, part = _COLORS[column % len(_COLORS)], f"{99 * value / most:.1f}%"
    return (
        ' style="width: 10em; height: 80%; background: linear-gradient(90deg, '
        f'{color} {part}, transparent {part})"'
    )


def write(tables, stream) -> None:
    """Writes TABLES as text."""
    stream.write(repr(tables))
