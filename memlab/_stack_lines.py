"""Tables of a function's lines with what memory did while each ran, for any recording.

The figures are the C core's (csrc/core/stack_lines.h).  This file owns which functions
are shown, what their source says, and the words of a table.
"""

import ast
import io
import linecache
import os
import stat
import tokenize
import warnings

from memlab._errors import Error

_FUNCTIONS_SHOWN = 3
# Longer functions are shown where something happened, with this many lines around it.
_WHOLE = 40
_AROUND = 2
_NAMES_LISTED = 12
# No program's source; a recording may name any file.
_MOST_BYTES = 8 << 20
_SOURCE_SHOWN = 80
_NODES = {
    ast.Lambda: "<lambda>",
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
_FIGURES = (
    ("at_peak_bytes", "at peak"),
    ("backward_bytes", "backward"),
    ("peak_bytes", "peak"),
    ("allocated_bytes", "allocated"),
    ("left_bytes", "left"),
)
_LEGEND = (
    "at peak: live at the peak, allocated while the line ran, by it or what it called",
    "backward: live at the peak, allocated by the backward pass of these",
    "peak: most allocated on the device right after an allocation of the line",
    "allocated: in all, while the line ran; left: of that, not freed at the end",
)
# What is wrong with the source of a function, for people.
_SOURCE_WORDS = {
    "read": "",
    "newer": "its file is newer than the recording: these lines may be others",
    "differs": "its file is not as it was: no such function at these lines",
    "missing": "its source is not here",
}


class _Source:
    """The text of a Python file, and where its functions are."""

    def __init__(self, text, changed_us):
        self.lines = text.split("\n")
        self.changed_us = changed_us
        # By name as in a frame: (first line, last line, qualified name).
        self.scopes = {"<module>": [(1, len(self.lines), "<module>")]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        nodes = [(node, "") for node in ast.iter_child_nodes(tree)]
        while nodes:
            node, outer = nodes.pop()
            inner = self._enter(node, outer)
            nodes += [(child, inner) for child in ast.iter_child_nodes(node)]

    def _enter(self, node, outer):
        """Notes the scope that NODE opens, if it does; what names in it begin with."""
        named = isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        )
        name = node.name if named else _NODES.get(type(node))
        if name is None:
            return outer
        first = node.lineno
        for decorator in getattr(node, "decorator_list", ()):
            first = min(first, decorator.lineno)
        whole = outer + name
        self.scopes.setdefault(name, []).append((first, node.end_lineno, whole))
        return whole + ("." if isinstance(node, ast.ClassDef) else ".<locals>.")

    def scope(self, name, line):
        """The innermost scope of that NAME which has LINE, or None."""
        having = [s for s in self.scopes.get(name, ()) if s[0] <= line <= s[1]]
        return max(having, default=None)

    def line(self, number):
        return self.lines[number - 1].rstrip() if number <= len(self.lines) else ""


def _read(path):
    """(text, unix microseconds of its last change) of the file at PATH, or None."""
    if not os.path.isabs(path) or not stat.S_ISREG(os.stat(path).st_mode):
        return None
    # It may have become a pipe, which must not stop us.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(path, "rb", opener=lambda p, _: os.open(p, flags)) as file:
        data = file.read(_MOST_BYTES + 1)
        changed_us = os.fstat(file.fileno()).st_mtime_ns // 1000
    if len(data) > _MOST_BYTES:
        return None
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    # Python's lines end where this says, not at every character of str.splitlines.
    return io.TextIOWrapper(io.BytesIO(data), encoding).read(), changed_us


class _Sources:
    """Sources by path, each read once; None for one that cannot be had."""

    def __init__(self):
        self._known = {}

    def of(self, path):
        if path not in self._known:
            self._known[path] = self._make(path)
        return self._known[path]

    @staticmethod
    def _make(path):
        try:
            found = _read(path)
        except (OSError, ValueError, SyntaxError, LookupError):
            found = None
        if found is None:
            # What was typed in a notebook that runs here.
            entry = linecache.cache.get(path, ())
            if len(entry) != 4 or entry[1] is not None:
                return None
            found = "".join(entry[2]), 0
        try:
            return _Source(*found)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None


class Table:
    """One function: its name and extent, and the figures of its lines."""

    def __init__(self, function, lines, source, scope, state):
        self.file = function["file"]
        self.recorded_name = function["function"]
        self.user = function["user"]
        self.lines = lines
        self.state = state
        self.source = source if scope is not None else None
        numbers = [line["line"] for line in lines]
        self.first, self.last, self.name = scope or (
            min(numbers),
            max(numbers),
            self.recorded_name,
        )
        self.own_bytes = 0

    def answer(self) -> dict:
        """It as `memlab report --json` has it."""
        return {
            "file": self.file,
            "function": self.name,
            "first_line": self.first,
            "last_line": self.last,
            "source": self.state,
            "own_bytes": self.own_bytes,
            "lines": [{**line, "code": self._code(line["line"])} for line in self.lines],
        }

    def _code(self, number):
        return None if self.source is None else self.source.line(number)

    def matches(self, wanted) -> bool:
        """Whether WANTED, a name or FILE.py:name or module:name, means it."""
        place, _, name = wanted.rpartition(":")
        if place and not _is_in(place, self.file):
            return False
        if name in (self.recorded_name, self.name) or self.name.endswith("." + name):
            return True
        # Which class a method is of, only its source tells.
        return self.source is None and name.endswith("." + self.recorded_name)

    def rank(self):
        """Sorts what is to be shown first before the others."""
        return (not self.user, -self.own_bytes, self.file, self.first, self.name)


def _is_in(place, file):
    if not place.endswith(".py") and "/" not in place:
        tail = place.replace(".", "/")
        return ("/" + file).endswith((f"/{tail}.py", f"/{tail}/__init__.py"))
    return ("/" + file).endswith("/" + place.lstrip("/"))


def _split(function, source):
    """The functions of one name in one file that FUNCTION has the lines of."""
    if source is None:
        return [Table(function, function["lines"], None, None, "missing")]
    parts = {}
    for line in function["lines"]:
        scope = source.scope(function["function"], line["line"])
        if scope is None:
            return [Table(function, function["lines"], None, None, "differs")]
        parts.setdefault(scope, []).append(line)
    return [
        Table(function, lines, source, scope, "read") for scope, lines in parts.items()
    ]


def _of_device(recording, device, by_line, sources, wanted):
    """The tables of a device, those to be shown first before; of the functions for which
    WANTED(function, bytes at the peak of its own lines) holds."""
    found = recording.lines(device)
    own = {}
    for group in by_line:
        key = group["file"], group["function"], group["line"]
        own[key] = own.get(key, 0) + group["bytes"]
    tables = []
    for function in found["functions"]:
        file, name = function["file"], function["function"]
        mine = [own.get((file, name, line["line"]), 0) for line in function["lines"]]
        if wanted(function, sum(mine)):
            tables += _split(function, sources.of(file))
    for table in tables:
        table.own_bytes = sum(
            own.get((table.file, table.recorded_name, line["line"]), 0)
            for line in table.lines
        )
        began = found["start_time_us"]
        if table.state == "read" and 0 < began < table.source.changed_us:
            table.state = "newer"
    tables.sort(key=Table.rank)
    return tables


def tables(recording, peaks, names=()) -> dict[int, list[Table]]:
    """By device, the tables to show.

    peaks: the answers of recording.peak() by device.  names: of functions, as in
    Table.matches; without any, those of the user whose lines hold most at the peak.
    Raises Error for a name that no function has.
    """
    sources = _Sources()
    chosen = {}
    missing = list(names)
    last_parts = {name.rpartition(":")[2].rpartition(".")[2] for name in names}

    def wanted(function, own_bytes):
        return function["function"] in last_parts if names else own_bytes

    for device, peak in peaks.items():
        found = _of_device(recording, device, peak["by_line"], sources, wanted)
        if names:
            missing = [n for n in missing if not any(t.matches(n) for t in found)]
            found = [t for t in found if any(t.matches(n) for n in names)]
        else:
            own = [t for t in found if t.own_bytes]
            found = [t for t in own if t.user == own[0].user][:_FUNCTIONS_SHOWN]
        chosen[device] = found
    if missing:
        raise Error(_no_such(missing[0], recording, peaks, sources))
    return chosen


def _no_such(name, recording, peaks, sources):
    from memlab._report import escape, shorten

    known = []
    for device, peak in peaks.items():
        known += _of_device(
            recording, device, peak["by_line"], sources, lambda f, _: f["user"]
        )
    known.sort(key=Table.rank)
    said = list(dict.fromkeys(f"{shorten(t.file)}:{t.name}" for t in known))
    more = [f"{len(said) - _NAMES_LISTED} more"] if len(said) > _NAMES_LISTED else []
    listed = ", ".join(said[:_NAMES_LISTED] + more)
    has = f"your files' are {listed}" if listed else "it names none of your files"
    return escape(f"no function {name} allocates in this recording; {has}")


# ---- In words ----


def text(chosen, whole, named, start=None):
    """The section of the report with the tables CHOSEN, as lines.

    whole: allocated bytes at the peak.  named: the functions were asked for by name.
    """
    if not chosen:
        return
    yield ""
    if named:
        yield "Line by line"
    else:
        yield "Line by line, the functions whose own lines hold most of the peak"
    yield from ("  " + line for line in _LEGEND)
    for table in chosen:
        yield from _table_text(table, whole, named, start)


def _table_text(table, whole, named, start):
    from memlab._report import _rows, escape, share, shorten, size

    place = f"{shorten(table.file, start)}:{table.first} {table.name}"
    part = f"{size(table.own_bytes)} ({share(table.own_bytes, whole).strip()})"
    yield ""
    yield f"  {escape(place)}: {part} of the peak is of its own lines"
    if _SOURCE_WORDS[table.state]:
        yield f"  ({_SOURCE_WORDS[table.state]})"
    columns = [
        (key, title)
        for key, title in _FIGURES
        if key != "backward_bytes" or any(line[key] for line in table.lines)
    ]
    rows = [("line", *(title for _, title in columns), "")]
    left_out = 0
    by_number = {line["line"]: line for line in table.lines}
    if not named and len(by_number) > _WHOLE:
        most = sorted(
            table.lines,
            key=lambda line: -line["at_peak_bytes"] - line["backward_bytes"],
        )
        left_out = len(by_number) - _WHOLE
        by_number = {line["line"]: line for line in most[:_WHOLE]}
    numbers = _shown(table, by_number, named)
    margin = _margin([table.source.line(n) for n in numbers]) if table.source else 0
    before = None
    for number in numbers:
        if table.source and before is not None and number > before + 1:
            rows.append(("...", *("" for _ in columns), ""))
        before = number
        line = by_number.get(number)
        figures = [
            "" if line is None else size(line[key]) if line[key] else "-"
            for key, _ in columns
        ]
        code = ""
        if table.source:
            code = _cut(escape(table.source.line(number).expandtabs()[margin:]))
        rows.append((str(number or "?"), *figures, code))
    yield from _rows(rows)
    if left_out:
        yield f"  ... and {left_out} more lines"


def _shown(table, by_number, named):
    """The numbers of the lines to show of TABLE, of which BY_NUMBER has figures."""
    if table.source is None:
        return sorted(by_number)
    extent = range(table.first, table.last + 1)
    if named or len(extent) <= _WHOLE:
        return list(extent)
    near = {table.first}
    for number in by_number:
        near.update(range(number - _AROUND, number + _AROUND + 1))
    return sorted(near & set(extent))


def _margin(lines):
    """By how much all LINES are indented."""
    wide = (line.expandtabs() for line in lines if line.strip())
    return min((len(line) - len(line.lstrip(" ")) for line in wide), default=0)


def _cut(code):
    return code if len(code) <= _SOURCE_SHOWN else code[:_SOURCE_SHOWN] + " ..."
