"""The progress line of this process's one command, and how long it took."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from memlab._cli import speeds
from memlab._text.progress import DELAY, Progress

_current: Progress | None = None
_reads = "", 0  # the command, and how many bytes


def begin(what: str, paths: Iterable[object] = ()) -> None:
    """Begins the line of this process's one command, which reads PATHS: for as many bytes
    it will take as long as it took the last time; at the first, as its reading tells."""
    global _current, _reads
    _reads = what, speeds.size_of(paths) if sys.stderr.isatty() else 0
    known = speeds.seconds(*_reads)
    reading = None if known else speeds.Reading(*_reads)
    _current = Progress(what, sys.stderr, expected=known, reading=reading)


def end() -> None:
    """Ends the line before other output."""
    if _current is not None:
        _current.end()


def keep() -> None:
    """After success: how long it took up to the end of its line is kept for the next time,
    if that is long enough to be told."""
    took = None if _current is None else _current.took
    if took is not None and took > DELAY:
        speeds.keep(*_reads, took)
