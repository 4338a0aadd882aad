"""Tables of a function's lines with the memory while each ran, for any recording.

The C core has the figures (csrc/core/analysis/answers/stack_lines.h).  This file owns
which functions are shown, their source text, and the words of a table.
"""

from memlab._errors import Error
from memlab._text.code import Code
from memlab._text.wording import aligned, escape, share, shorten, size

_FUNCTIONS_SHOWN = 3
# Longer functions are shown only near lines with figures, with this many lines around
# them.
_WHOLE = 40
_AROUND = 2
_NAMES_LISTED = 12
_SOURCE_SHOWN = 80
_FIGURES = (
    ("at_peak_bytes", "at peak"),
    ("backward_bytes", "backward"),
    ("peak_bytes", "peak"),
    ("allocated_bytes", "allocated"),
    ("left_bytes", "left"),
)
_LEGEND = (
    "at peak: live at the peak, allocated while the line ran, by it or its callees",
    "backward: live at the peak, allocated by the backward pass of these",
    "peak: most allocated on the device right after an allocation of the line",
    "allocated: in all, while the line ran; left: of that, not freed at the end",
)
# Problems with a function's source, in words.
_SOURCE_WORDS = {
    "read": "",
    "newer": "its file changed after the recording: these lines may differ",
    "differs": "its file changed: no such function at these lines",
    "missing": "the recording has no text of these lines; memlab report --source DIR reads "
    "the program's files",
    "absent": "the recording has no text of these lines, and the folder of --source has no "
    "such file that Python can read",
}


class Table:
    """One function: its name and extent, and the figures of its lines."""

    def __init__(self, function, lines, source, scope, state):
        self.file = function["file"]
        self.recorded_name = function["function"]
        self.user = function["user"]
        self.lines = lines
        self.state = state
        self.source = source
        numbers = [line["line"] for line in lines]
        self.first, self.last, self.name = scope or (
            min(numbers),
            max(numbers),
            self.recorded_name,
        )
        self.own_bytes = 0

    def answer(self) -> dict:
        """The table as in `memlab report --json`."""
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
        """Whether WANTED, a name or FILE.py:name or module:name, selects this function.
        """
        place, _, name = wanted.rpartition(":")
        if place and not _is_in(place, self.file):
            return False
        if name in (self.recorded_name, self.name) or self.name.endswith("." + name):
            return True
        # Only its source tells the class of a method.
        return self.source is None and name.endswith("." + self.recorded_name)

    def rank(self):
        """Sort key: the most important first."""
        return (not self.user, -self.own_bytes, self.file, self.first, self.name)


def _is_in(place, file):
    if not place.endswith(".py") and "/" not in place:
        tail = place.replace(".", "/")
        return ("/" + file).endswith((f"/{tail}.py", f"/{tail}/__init__.py"))
    return ("/" + file).endswith("/" + place.lstrip("/"))


def _split(function, code):
    """The functions with one name in one file that contain FUNCTION's lines."""
    lines = {line["line"]: line for line in function["lines"]}
    parts = code.split(function["file"], function["function"], list(lines))
    return [
        Table(function, [lines[number] for number in numbers], source, scope, state)
        for numbers, source, scope, state in parts
    ]


def _of_device(recording, device, by_line, code, wanted):
    """A device's tables, most important first, of the functions for which
    WANTED(function, bytes at the peak of its own lines) holds.
    """
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
            tables += _split(function, code)
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


def tables(recording, peaks, names=(), code=None) -> dict[int, list[Table]]:
    """By device, the tables to show.

    peaks: the answers of recording.peak() by device.  names: of functions, as in
    Table.matches; empty: the user's functions whose lines have most at the peak.  code:
    the text of lines; None: only the recording's.  Raises Error for a name that no
    function has.
    """
    code = code or Code(recording)
    chosen = {}
    missing = list(names)
    last_parts = {name.rpartition(":")[2].rpartition(".")[2] for name in names}

    def wanted(function, own_bytes):
        return function["function"] in last_parts if names else own_bytes

    for device, peak in peaks.items():
        found = _of_device(recording, device, peak["by_line"], code, wanted)
        if names:
            missing = [n for n in missing if not any(t.matches(n) for t in found)]
            found = [t for t in found if any(t.matches(n) for n in names)]
        else:
            own = [t for t in found if t.own_bytes]
            found = [t for t in own if t.user == own[0].user][:_FUNCTIONS_SHOWN]
        chosen[device] = found
    if missing:
        raise Error(_no_such(missing[0], recording, peaks, code))
    return chosen


def _no_such(name, recording, peaks, code):
    known = []
    for device, peak in peaks.items():
        known += _of_device(
            recording, device, peak["by_line"], code, lambda f, _: f["user"]
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

    whole: allocated bytes at the peak.  named: the functions were requested by name.
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
    place = f"{shorten(table.file, start)}:{table.first} {table.name}"
    part = f"{size(table.own_bytes)} ({share(table.own_bytes, whole).strip()})"
    yield ""
    yield f"  {escape(place)}: {part} of the peak, by its own lines"
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
    yield from aligned(rows)
    if left_out:
        yield f"  ... and {left_out} more lines"


def _shown(table, by_number, named):
    """The numbers of TABLE's lines to show; BY_NUMBER has figures."""
    if table.source is None or not table.source.whole:
        return sorted(by_number)
    extent = range(table.first, table.last + 1)
    if named or len(extent) <= _WHOLE:
        return list(extent)
    near = {table.first}
    for number in by_number:
        near.update(range(number - _AROUND, number + _AROUND + 1))
    return sorted(near & set(extent))


def _margin(lines):
    """The common indentation of LINES."""
    wide = (line.expandtabs() for line in lines if line.strip())
    return min((len(line) - len(line.lstrip(" ")) for line in wide), default=0)


def _cut(code):
    return code if len(code) <= _SOURCE_SHOWN else code[:_SOURCE_SHOWN] + " ..."
