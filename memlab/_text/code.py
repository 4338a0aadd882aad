"""The text of a program's lines of code, and their functions.

Owns the reading of Python sources: by the recorder, those of the running program; for a
report, those in a folder named by the user.  Names from a recording are never opened as
files: an untrusted recording could show its reader's files.
"""

from __future__ import annotations

import ast
import io
import linecache
import os
import re
import stat
import sys
import tokenize
import warnings
from typing import NamedTuple

from memlab._errors import Error
from memlab._text.function_forwards import FunctionForwards

# Above the size of any program's source.
_MOST_BYTES = 8 << 20
# Larger files would delay a training program too long.
_MOST_BYTES_RECORDED = 1 << 20
# Bytes that may be parsed while a step waits.
MOST_BYTES_AT_STEP = 128 << 10
_MOST_TEXT = 400
_MOST_PATH = 4096
# For TorchScript's frames, whatever functions were inlined.
_INLINED = ("<forward op>", "<backward op>")
_NODES = {
    ast.Lambda: "<lambda>",
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
# A backslash with the following character.  Before quotes, line ends and itself, it
# affects where a string ends; for others, Python may warn.
_ESCAPE = re.compile(r"\\(?:([\n\r'\"\\])|N\{[^}\n]*\}|(.))")
# A number directly followed by a word, which also makes Python warn.
_NUMBER = re.compile(
    r"(?<![\w.])(0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+"
    r"|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?[jJ]?)"
    r"(?=(?:and|else|for|if|in|is|not|or)\b)"
)


class Scope(NamedTuple):
    """A function: its first and last line (0: unknown), and its qualified name."""

    first: int
    last: int
    name: str


class Source:
    """The text of a Python file, and the extents of its functions.

    tree: from ast.parse(), or None if functions are not needed.  changed_us: the file's
    last change.
    """

    # All lines are present, not only those of frames.
    whole = True

    def __init__(self, lines: list[str], tree: ast.Module | None, changed_us: int):
        self._lines = lines
        self.changed_us = changed_us
        self.parsed = tree is not None
        # By name as in a frame.
        self._scopes = {"<module>": [Scope(1, len(lines), "<module>")]}
        nodes = [] if tree is None else [(node, "") for node in ast.iter_child_nodes(tree)]
        while nodes:
            node, outer = nodes.pop()
            inner = self._enter(node, outer)
            nodes += [(child, inner) for child in ast.iter_child_nodes(node)]

    def _enter(self, node, outer):
        """Notes the scope that NODE opens, if any; returns the prefix of names in it.
        """
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
        self._scopes.setdefault(name, []).append(Scope(first, node.end_lineno, whole))
        return whole + ("." if isinstance(node, ast.ClassDef) else ".<locals>.")

    def scope(self, name: str, line: int) -> Scope | None:
        """The innermost scope with that NAME that contains LINE, or None."""
        scopes = self._scopes.get(name, ())
        if name in _INLINED:
            scopes = [scope for named in self._scopes.values() for scope in named]
        return max((s for s in scopes if s.first <= line <= s.last), default=None)

    def has(self, number: int) -> bool:
        """Whether there is a line NUMBER."""
        return number <= len(self._lines)

    def line(self, number: int) -> str:
        """The text of line NUMBER; "" if it does not exist."""
        return self._lines[number - 1].rstrip() if number <= len(self._lines) else ""


def _read(path, most):
    """(text, unix microseconds of its last change) of the file at PATH, or None."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    # It may have become a pipe, on which an open must not block.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(path, "rb", opener=lambda p, _: os.open(p, flags)) as file:
        status = os.fstat(file.fileno())
        data = file.read(most + 1) if stat.S_ISREG(status.st_mode) else b""
    if not data or len(data) > most or b"\0" in data:
        return None
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    # These are Python's line ends; str.splitlines has more.
    text = io.TextIOWrapper(io.BytesIO(data), encoding).read()
    return text, status.st_mtime_ns // 1000


# ---- Of the program that runs here ----


def _cell(path):
    """(text, 0) of a notebook's cell, or None.  The cache may also have modules'
    loaders, which are not called.
    """
    entry = linecache.cache.get(path, ())
    if len(entry) != 4 or entry[1] is not None:
        return None
    return "".join(entry[2]), 0


def _program():
    main = sys.modules.get("__main__")
    return getattr(main, "__dict__", {}).get("__file__")


def _own_text(path):
    found = _cell(path)
    if found is None and os.path.isabs(path):
        if path.endswith(".py") or path == _program():
            found = _read(path, _MOST_BYTES_RECORDED)
    return found


def _tree(text):
    # Warnings would appear as the program's.  Catching them changes the filters of its
    # other threads.
    def plain(match):
        return match[0] if match[1] else "/" + (match[2] or "")

    return ast.parse(_NUMBER.sub(r"\1 ", _ESCAPE.sub(plain, text)))


class Reader:
    """Reads the text of the lines in a recording's frames, for the recorder.

    Each file is read once: the first text is nearest to what ran.  Raises nothing for a
    file's errors; such a file has no text.
    """

    def __init__(self):
        self._known = {}  # by path: {(function, line): what is told of it, or None}
        self._sources = {}  # by path and whether functions are found: Source, or None
        self._told = set()

    def lines(self, frames: list[tuple[str, str, int, bool]], most: int | None = None) -> list:
        """Of FRAMES, (file, function, line, whether it is the user's or a model's), (index,
        text, qualified name, first and last line of the function, change of the file, whether
        it is a torch.autograd.Function's forward).

        most: bytes of files to parse now; None: all.  Frames of further files have no
        answer yet.
        """
        wanted, forwards = {}, FunctionForwards()
        for path, function, line, named in frames:
            if (function, line) not in self._known.setdefault(path, {}):
                wanted.setdefault((path, named), []).append((function, line))
        for (path, named), places in wanted.items():
            if (path, named) not in self._sources:
                # No more than names and lines is wanted of other files: to find their
                # functions takes a hundred times longer.
                if named and most is not None:
                    size = _size(path)
                    if size > most:
                        continue
                    most -= size
                self._sources[path, named] = _source(path, named)
            for place in places:
                about = _about(self._sources[path, named], *place)
                if about is not None:
                    about = (*about, forwards.tell(path, *place))
                self._known[path][place] = about
        told = []
        for i, (path, function, line, _) in enumerate(frames):
            about = self._known[path].get((function, line))
            if about is not None:
                told.append((i, *about))
        return told

    def news(self, frames: list[tuple[str, str, int, bool]], most: int | None = None) -> list:
        """The same, without those already returned, for a file."""
        told = []
        for about in self.lines(frames, most):
            place = frames[about[0]][:3]
            if place not in self._told:
                self._told.add(place)
                told.append(about)
        return told


def _size(path):
    """Bytes to parse of the file at PATH, which may not exist."""
    try:
        cell = _cell(path)
        return os.stat(path).st_size if cell is None else len(cell[0])
    except Exception:
        return 0


def _source(path, named):
    try:
        found = _own_text(path)
        if found is None:
            return None
        text, changed_us = found
        return Source(text.split("\n"), _tree(text) if named else None, changed_us)
    except Exception:
        # The file cannot be read or parsed, so there is no text.
        return None


def _about(source, function, line):
    """The entry of LINE in FUNCTION of SOURCE, or None."""
    if source is None or not source.has(line):
        return None
    scope = source.scope(function, line) if source.parsed else Scope(0, 0, function)
    if scope is None:
        return "", "", 0, 0, source.changed_us
    said = source.line(line)[:_MOST_TEXT]
    return said, scope.name, scope.first, scope.last, source.changed_us


# ---- In a report ----


class _Parts:
    """A function's lines with known text, from any origin."""

    whole = False

    def __init__(self, lines):
        self._texts = {number: line.text for number, line in lines.items()}
        self.changed_us = max(line.changed_us for line in lines.values())

    def line(self, number):
        return self._texts.get(number, "")


class _Line(NamedTuple):
    text: str
    scope: Scope
    changed_us: int


class _Folder:
    """Python sources in one folder, by the paths that the files had elsewhere."""

    def __init__(self, path):
        self._root = os.path.realpath(path)
        if not os.path.isdir(self._root):
            raise Error(f"{path}: no such folder; --source takes the program's folder")
        self._known = {}

    def of(self, path):
        if path not in self._known:
            self._known[path] = self._make(path)
        return self._known[path]

    def _find(self, path):
        """The file in the folder whose path agrees longest with the end of PATH, or
        None.
        """
        parts = [part for part in re.split(r"[/\\]", path) if part]
        if ".." in parts or "." in parts or "\0" in path or len(path) > _MOST_PATH:
            return None
        for i in range(len(parts)):
            found = os.path.join(self._root, *parts[i:])
            if os.path.lexists(found):
                real = os.path.realpath(found)
                inside = os.path.commonpath([real, self._root]) == self._root
                return real if inside and real.endswith(".py") else None
        return None

    def _make(self, path):
        try:
            real = self._find(path)
            found = None if real is None else _read(real, _MOST_BYTES)
            if found is None:
                return None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(found[0])
            return Source(found[0].split("\n"), tree, found[1])
        except (OSError, ValueError, SyntaxError, LookupError, RecursionError, MemoryError):
            return None


class Code:
    """The text of code for a report: RECORDING's, and for lines without text, that in
    the folder SOURCE. Raises Error if there is no such folder.
    """

    def __init__(self, recording, source: str | None = None):
        self._lines = {}
        self._folder = None if source is None else _Folder(source)
        for file, function, line, text, *scope, changed_us in recording.code_lines():
            name, first, last = scope
            place = file, function, line
            self._lines.setdefault(place, _Line(text, Scope(first, last, name), changed_us))

    def line(self, file: str, function: str, number: int) -> str:
        """The text of line NUMBER of FILE, in FUNCTION as in frames; "": unknown."""
        kept = self._lines.get((file, function, number))
        if kept is not None and kept.scope.name:
            return kept.text
        source = self._source(file)
        known = source is not None and source.scope(function, number) is not None
        return source.line(number) if known else ""

    def split(self, file: str, function: str, numbers: list[int]) -> list[tuple]:
        """The functions with one name in FILE that contain the lines NUMBERS, each as
        (their lines, source or None, Scope or None, state as in the report's JSON).
        """
        kept, others = {}, []
        for number in numbers:
            line = self._lines.get((file, function, number))
            if line is not None and line.scope.name:
                kept[number] = line
            else:
                others.append(number)
        source = self._source(file)
        if source is not None:
            kept = {n: _in_folder(line, source, function, n) for n, line in kept.items()}
        scopes = [] if source is None else [source.scope(function, n) for n in others]
        parts = {}
        for number, line in kept.items():
            parts.setdefault(line.scope, {})[number] = line
        if source is None or None in scopes:
            told = self._without_text(file, function, others, source)
        else:
            told = []
            for number, scope in zip(others, scopes, strict=True):
                line = _Line(source.line(number), scope, source.changed_us)
                parts.setdefault(scope, {})[number] = line
        for scope, part in parts.items():
            whole = not any(number in kept for number in part)
            about = source if whole else _Parts(part)
            told.append((sorted(part), about, scope if scope.first else None, "read"))
        return told

    def _source(self, file):
        return None if self._folder is None else self._folder.of(file)

    def _without_text(self, file, function, numbers, source):
        """The parts with the lines NUMBERS that have no text."""
        states = {}
        for number in numbers:
            if source is not None or (file, function, number) in self._lines:
                state = "differs"
            else:
                state = "missing" if self._folder is None else "absent"
            states.setdefault(state, []).append(number)
        return [(part, None, None, state) for state, part in states.items()]


def _in_folder(line, source, function, number):
    """LINE, whose recording may not know its function, as SOURCE has it."""
    scope = None if line.scope.first else source.scope(function, number)
    return line if scope is None else line._replace(scope=scope)
