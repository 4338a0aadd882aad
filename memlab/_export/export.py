"""Recordings in other tools' formats, chosen by a file name's ending.

The core and `_COLUMNS` have the contents; docs/VIEWING.md documents the formats.
Columns are buffers from the core and go into each format as such: nothing here runs
once per event.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterable

from memlab import _core
from memlab._errors import Error
from memlab._export.recording_tables import TABLES, TEXTS, Tables, arrow_tables, package
from memlab._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._core import Recording

__all__ = ["FORMATS", "TABLES", "convert", "format_of"]

# Text that a spreadsheet may take as a formula.  Some ignore leading white space; those
# of East Asia accept wide signs too.
_FORMULA = r"[\t\r\n]|[\s\x00-\x1f\x7f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]"


def write_by_name(path, write):
    """Writes the file at PATH by WRITE(name), or the bytes WRITE.  An OSError names PATH:
    writers know only a temporary name.
    """
    try:
        _core.write_file(path, write)
    except OSError as error:
        if error.errno is None:
            # pyarrow raises it sometimes.
            raise Error(f"{path}: {error}") from None
        raise OSError(error.errno, os.strerror(error.errno), path) from None


# ---- SQLite ----

_STACK_FRAMES = """
CREATE VIEW stack_frames AS
WITH RECURSIVE walk(stack, depth, at) AS (
    SELECT stack, 0, stack FROM stacks WHERE stack > 0
    UNION ALL
    SELECT walk.stack, depth + 1, stacks.parent
    FROM walk JOIN stacks ON stacks.stack = walk.at WHERE stacks.parent > 0
)
SELECT walk.stack, walk.depth, frames.function, frames.file, frames.line, stacks.module
FROM walk JOIN stacks ON stacks.stack = walk.at JOIN frames ON frames.frame = stacks.frame
"""


def _sql_type(name):
    return "TEXT" if name in TEXTS or name in _core.COLUMN_TEXTS else "INTEGER"


def _write_sql_table(database, tables, name, device):
    for index in tables.devices(name, device):
        names, rows = tables.rows(name, index, signed=True)
        key = ", ".join(f'"{n}"' for n in names[: 1 if index is None else 2])
        columns = ", ".join(f'"{n}" {_sql_type(n)} NOT NULL' for n in names)
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({key})) "
            "WITHOUT ROWID"
        )
        marks = ", ".join("?" * len(names))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)


def _write_about(database, recording):
    database.execute("CREATE TABLE recording (key TEXT PRIMARY KEY, value TEXT)")
    about = {"format": "1", "memlab": __version__, "source": recording.source}
    database.executemany("INSERT INTO recording VALUES (?, ?)", about.items())
    database.execute(
        "CREATE TABLE devices (device INTEGER PRIMARY KEY, name TEXT, events INTEGER, "
        "overwritten_events INTEGER, dropped_events INTEGER, lost_stacks INTEGER, "
        "lost_names INTEGER)"
    )
    for device in range(recording.device_count):
        counts = recording.counts(device)
        database.execute(
            "INSERT INTO devices VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                device,
                recording.device_name(device),
                # Like the columns, signed.
                *(
                    (counts[name] + 2**63) % 2**64 - 2**63
                    for name in (
                        "events",
                        "overwritten_events",
                        "dropped_events",
                        "lost_stacks",
                        "lost_names",
                    )
                ),
            ),
        )


def _write_sqlite(recording, path, device, table):
    try:
        import sqlite3
    except ImportError as error:
        raise Error(
            f"{path}: this Python has no sqlite3 ({error}): choose another format"
        ) from None
    tables = Tables(recording)

    def write(temporary):
        try:
            with contextlib.closing(sqlite3.connect(temporary)) as database:
                write_tables(database)
        except sqlite3.Error as error:
            # SQLite does not pass on the system's reason.
            full = "is full" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from None

    def write_tables(database):
        # No other process sees the file before it is whole.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        with database:
            _write_about(database, recording)
            for name in TABLES:
                _write_sql_table(database, tables, name, device)
            database.execute(_STACK_FRAMES)

    write_by_name(path, write)


# ---- CSV ----


@functools.cache
def _formula():
    """_FORMULA, compiled when a table is written: the command line reads this file for its help."""
    return re.compile(_FORMULA)


def _defused(text):
    """TEXT, changed if a spreadsheet would take it as a formula."""
    return f"'{text}" if _formula().match(text) else text


def _write_csv(recording, path, device, table):
    import csv

    tables = Tables(recording)
    strings = list(map(_defused, tables.strings))

    def write(temporary):
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\r\n")
            for i, index in enumerate(tables.devices(table, device)):
                names, rows = tables.rows(table, index, strings)
                if i == 0:
                    writer.writerow(names)
                writer.writerows(rows)

    write_by_name(path, write)


# ---- Arrow ----


def _write_arrow(recording, path, device, table):
    pa = package("pyarrow", f"{path}: writing it")
    import pyarrow.ipc

    _write_tables(
        path, arrow_tables(pa, recording, device, table), pyarrow.ipc.new_file
    )


def _write_parquet(recording, path, device, table):
    pa = package("pyarrow", f"{path}: writing it")
    import pyarrow.parquet

    _write_tables(
        path,
        arrow_tables(pa, recording, device, table),
        pyarrow.parquet.ParquetWriter,
    )


def _write_tables(path, tables: Iterable[Any], make):
    def write(temporary):
        with contextlib.ExitStack() as stack:
            writer = None
            for table in tables:
                if writer is None:
                    writer = stack.enter_context(make(temporary, table.schema))
                writer.write_table(table)

    write_by_name(path, write)


# ---- All ----


def _write_pickle(recording, path, device, table):
    recording.write_pickle(path, True)


def _write_json(recording, path, expand):
    recording.write_json(path, expand)


def _write_html(recording, path, title):
    from memlab._page import page
    from memlab._report import report

    notes = report.file_notes(recording.file)
    _core.write_file(path, page.of(recording, title=title, notes=notes))


def _write_perfetto(recording, path, device, table):
    recording.write_perfetto(path)


def _write_speedscope(recording, path, device, table):
    _core.write_file(path, recording.stacks_speedscope(device))


def _write_folded(recording, path, device, table):
    _core.write_file(path, recording.stacks_folded(device))


# By name: endings, the writer, whether it takes a device, whether it takes a table.
FORMATS = {
    "pickle": ((".pickle",), _write_pickle, False, False),
    "json": ((".json",), _write_json, False, False),
    "html": ((".html",), _write_html, False, False),
    "perfetto": ((".perfetto-trace", ".pftrace"), _write_perfetto, False, False),
    "speedscope": ((".speedscope.json",), _write_speedscope, True, False),
    "folded": ((".folded",), _write_folded, True, False),
    "sqlite": ((".sqlite", ".db"), _write_sqlite, True, False),
    "arrow": ((".arrow", ".feather"), _write_arrow, True, True),
    "parquet": ((".parquet",), _write_parquet, True, True),
    "csv": ((".csv",), _write_csv, True, True),
}


def format_of(path: str) -> str:
    """The format for PATH's ending; raises memlab.Error if there is none."""
    endings = {end: name for name, (ends, *_) in FORMATS.items() for end in ends}
    for ending in sorted(endings, key=len, reverse=True):
        if path.lower().endswith(ending):
            return endings[ending]
    raise Error(f"{path}: expected a name that ends in {', '.join(endings)}")


def convert(
    recording: Recording,
    path: str,
    to: str | None = None,
    *,
    device: int | None = None,
    table: str | None = None,
    title: str = "",
    expand: bool = False,
) -> None:
    """Writes RECORDING as the file at PATH, which appears whole or not at all.

    to: a key of FORMATS; None: by the ending of PATH.  device: None is all.  table: one
    of TABLES, for formats with one table per file; None is "allocations".  title: the
    page's title.  expand: JSON of version 1, with every stack written out at each use.

    Raises memlab.Error for a name without a known ending, for an option that the format
    does not have, and for a missing package; ValueError for a device that the recording
    lacks; OSError.
    """
    to = to or format_of(path)
    _, write, takes_device, takes_table = FORMATS[to]
    for name, value, takes in (
        ("device", device, takes_device),
        ("table", table, takes_table),
    ):
        if value is not None and not takes:
            holds = "all devices" if name == "device" else "no table, or all of them"
            raise Error(f"{path}: a {to} file has {holds}: leave --{name} out")
    if device is not None and not 0 <= device < recording.device_count:
        last = recording.device_count - 1
        raise ValueError(f"the recording has devices 0 to {last}, no {device}")
    if expand and write is not _write_json:
        raise Error(f"{path}: --expand is for json, not for {to}: leave it out")
    if write is _write_html:
        write(recording, path, title)
    elif write is _write_json:
        write(recording, path, expand)
    else:
        write(recording, path, device, table or "allocations")
