"""Line tables to show, and those of pytorch_memlab (tests/data/pytorch_memlab)."""

import linecache
from pathlib import Path

from memlab._text.line_text import Table, Tables

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "pytorch_memlab"
DEFAULT = ("active_bytes.all.peak", "reserved_bytes.all.peak")
KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40


def golden(name):
    return (GOLDEN / name).read_text()


def codes(source, path):
    """The code objects of the functions in SOURCE, which is in PATH, by qualified name."""
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    found = {}

    def look(code, outer=""):
        for inner in code.co_consts:
            if hasattr(inner, "co_code"):
                found[outer + inner.co_name] = inner
                look(inner, f"{outer}{inner.co_name}.")

    look(compile(source, path, "exec"))
    return found


def table(code, rows, columns=DEFAULT, name=None):
    """The table of CODE with ROWS: {line: figures}."""
    rows = [(line, 1, 0, tuple(figures)) for line, figures in sorted(rows.items())]
    return Table(name or code.co_name, code, rows, columns)


def tables(*these, columns=DEFAULT, notes=()):
    return Tables(list(these), columns, notes)
