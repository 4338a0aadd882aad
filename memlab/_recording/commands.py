"""The commands `memlab report`, `memlab convert` and `memlab export` as functions."""

from __future__ import annotations

import functools
import os
import shlex

from memlab._files import load, merged
from memlab._report import first_screen, parts, peaks
from memlab._report import report as _report
from memlab._report.answer import Answer
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memlab._answers import Report
    from memlab._core import _Path
    from memlab._files.merged import AnyRecording

__all__ = ["convert", "export", "report"]

_ROWS = 15


def report(
    recording: AnyRecording,
    *,
    full: bool = False,
    at: str | None = None,
    by: Iterable[str] = (),
    device: int | None = None,
    rank: int | None = None,
    lines: int | None = None,
    functions: Iterable[str] = (),
    source: _Path | None = None,
) -> Report:
    """What was live at the peak of a recording, or at another instant, on each device.

    recording: what memlab.open() takes or gives, or a MemorySnapshot.  device: its number
    in its process; rank: a process's rank; None: all.  at: the instant, as for
    Recording.at(); None: the peak.  functions: those to show line by line, as for
    `memlab report -f`; without any, those whose lines hold most.  source: a folder with the program's files,
    for lines whose text the recording lacks.

    Returns a dict, that of `memlab report --json`, described in docs/REPORT.md.  Its str()
    is the text of `memlab report`: the first screen, or all tables if full, or if any
    other argument is given.  lines: the most rows of a table; None: 15.  by: the only
    tables, of "line", "module", "category", "stack" and "size".

    Raises ValueError for an invalid argument, memlab.Error for what the recording lacks,
    and what memlab.open() and MemorySnapshot.data() raise.
    """
    asked = any(item is not None for item in (at, device, rank, lines, source))
    choice = parts.choose(
        at or "peak",
        by,
        lines=_ROWS if lines is None else lines,
        functions=wording.names(functions),
        source=source,
    )
    data, name = merged.recorded(recording, quiet=True)
    found = peaks.choose_devices(data, device, rank)
    if choice.instant.kind == "event" and len(found) > 1:
        raise ValueError(f"an event is of one device: add device or rank to at={at!r}")
    path = None if name == merged.UNNAMED else name
    answer = _report.report(
        data, path, choice.functions, str(choice.instant), found, source
    )
    notes = [*_report.file_notes(data.file), *load.unread_notes(data)]
    if not found:
        return Answer(answer, lambda _: [], [*notes, peaks.nothing(data)])  # type: ignore[return-value]
    first = choice.usual and not full and not asked and not choice.functions

    def sections(_):
        if first:
            last = functools.partial(_next, data, path)
            return [first_screen.parts(data, found, notes=notes, last=last)]
        screen = [first_screen.parts(data, found)] if full and choice.usual else []
        return [*screen, *parts.sections(data, found, choice)]

    return Answer(answer, sections, notes, first_screen.COLUMNS * first)  # type: ignore[return-value]


def _next(recording, path, explain):
    if path is None:
        return []
    word = shlex.quote(path)
    commands = [f"memlab report --full {word}"]
    if explain or (recording.source != "cpu" and not os.path.isdir(path)):
        # First what the screen lacks.
        commands.insert(not explain, f"memlab explain {word}")
    return [f"{' ' * 5 if at else 'Next:'} {line}" for at, line in enumerate(commands)]


def convert(
    recording: AnyRecording,
    out: _Path,
    to: str | None = None,
    *,
    device: int | None = None,
    table: str | None = None,
    expand: bool = False,
) -> None:
    """Writes a recording as a file for other tools, which appears whole or not at all.

    recording: what memlab.open() takes or gives, or a MemorySnapshot.  to: the format, as
    for `memlab convert --to`; None: by the ending of out.  device: an index; None: all.
    table: the one to write, for formats with one table a file; None: "allocations".
    expand: for json: every stack written out at each use.  docs/VIEWING.md has the formats
    and the tables.

    Raises memlab.Error for a name without a known ending, for an argument that the format
    does not have and for a missing package, ValueError for another format, table or
    device, OSError, and what memlab.open() and MemorySnapshot.data() raise.
    """
    from memlab._export import export
    from memlab._recording import view

    path = os.fsdecode(out)
    # Fails before a long file is read.
    to = to or export.format_of(path)
    if to not in export.FORMATS:
        raise ValueError(f"no format {to!r}: there are {', '.join(export.FORMATS)}")
    if table not in (None, *export.TABLES):
        raise ValueError(f"no table {table!r}: there are {', '.join(export.TABLES)}")
    data, name = merged.recorded(recording)
    title = view.title_of(name)
    export.convert(data, path, to, device=device, table=table, title=title, expand=expand)


def export(
    recording: AnyRecording,
    folder: _Path,
    *,
    run: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """Adds a run to a fleet's folder of Parquet files: a row for each rank, device, step and
    category, which docs/FLEET.md describes.

    recording: what memlab.open() takes or gives, or a MemorySnapshot.  folder: a path or
    URI; other runs there stay.  run: the run's name; a file of the same run and rank is
    replaced; None: the recording's name and when it began.  labels: what to group by, as
    {"commit": "1f2e", "team": "vision"}.

    Returns the files, one a rank.  Raises ValueError for an invalid name, memlab.Error
    without pyarrow and for what has no events, OSError, and what memlab.open() and
    MemorySnapshot.data() raise.
    """
    from memlab._export import fleet

    data, name = merged.recorded(recording)
    run = fleet.run_name(data, name) if run is None else run
    return fleet.export(data, os.fsdecode(folder), run, labels)
