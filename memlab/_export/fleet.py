"""Runs of a fleet as Parquet: a row for each run, rank, device, step and category.

Owns the schema, which docs/FLEET.md describes, the names of files in a fleet's folder, and
the rows of a recording.  Nothing here runs once per event or row: the core finds the peaks
of steps, Arrow makes the columns.
"""

from __future__ import annotations

import datetime
import os
import re
import tempfile

from memlab import _core
from memlab._errors import Error
from memlab._export import recording_tables
from memlab._files import download, merged, names, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from memlab._core import Recording

__all__ = ["check_labels", "check_run", "export", "run_name", "schema", "write"]

# A run's name is a folder's too.
_RUN = re.compile(r"[\w.+:@-][\w.+:@ -]{0,199}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def schema(pa: Any) -> Any:
    """The columns of a file, as pyarrow's schema; docs/FLEET.md says what they hold."""
    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("rank", pa.int32()),
            ("world_size", pa.int32()),
            ("host", text),
            ("device", pa.int32()),
            ("gpu_bytes", pa.int64()),
            ("step", pa.int64()),
            ("time", pa.timestamp("us", "UTC")),
            ("category", text),
            ("bytes", pa.int64()),
            ("allocated_bytes", pa.int64()),
            ("reserved_bytes", pa.int64()),
            ("ooms", pa.int32()),
            ("source", text),
            ("labels", pa.map_(pa.string(), pa.string())),
        ]
    )


def check_run(run: str) -> str:
    """RUN, if it can name a run.  Raises ValueError."""
    if not _RUN.fullmatch(run) or run in (".", ".."):
        raise ValueError(
            f"run must be of letters, digits and . _ - + : @, as 'gpt-2026.11', not {run!r}"
        )
    return run


def check_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """LABELS as texts.  Raises ValueError for a name that is not an identifier."""
    labels = dict(labels or {})
    for name in labels:
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise ValueError(f"a label's name must be as 'commit' or 'team', not {name!r}")
    return {name: str(value) for name, value in labels.items()}


# ---- Files ----


def write(pa: Any, table: Any, folder: str, run: str, name: str) -> str:
    """Writes TABLE, of schema(), as NAME into the part of FOLDER, a path or URI, that RUN
    has; it appears whole.  Returns its path.  Raises OSError, or memlab.Error with what to
    do if a store cannot take it.
    """
    import pyarrow.parquet

    path = f"{folder.rstrip('/')}/run={run}/{name}"
    if not download.is_uri(folder):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _core.write_file(path, lambda there: pyarrow.parquet.write_table(table, there))
        return path
    with tempfile.TemporaryDirectory(prefix="memlab-") as here:
        copy = os.path.join(here, name)
        pyarrow.parquet.write_table(table, copy)
        with open(copy, "rb") as file:
            try:
                store.Upload(file.fileno(), copy, path, True).attempt()
            except Exception as error:
                # Of a store's error only parts that can contain no credentials.
                raise Error(f"{store.shown(path)}: {store.described(error)}") from None
    return store.shown(path)


# ---- A recording ----


def run_name(recording: Recording, path: str) -> str:
    """A name for the run of RECORDING at PATH: the file's or folder's, and the time of its
    first step's peak, so that a folder used again is another run, and the same recording
    the same one.
    """
    stem = names.without_ending(os.path.basename(os.path.abspath(path.partition("?")[0])))
    devices = range(recording.device_count)
    steps = [recording.columns("steps", device)["time_ns"] for device in devices]
    first = min((column[0] for column in steps if len(column)), default=0)
    time = datetime.datetime.fromtimestamp(first // 10**9, datetime.timezone.utc)
    return check_run(re.sub(r"[^\w.+:@-]", "_", stem) + time.strftime("-%Y%m%dT%H%M%S"))


def _rows(pa, recording, rank, device, labels):
    """The rows of DEVICE, an index and a number, of RANK."""
    import pyarrow.compute as pc

    index, number = device["device"], device["number"]
    [steps] = recording_tables.arrow_tables(pa, recording, index, "steps")
    # A category without memory has no row, but each step has one.
    empty = pc.and_(
        pc.equal(steps["allocated"], 0),
        pc.equal(steps["category"].cast(pa.string()), "unknown"),
    )
    steps = steps.filter(pc.or_(pc.not_equal(steps["bytes"], 0), empty))
    count = len(steps)
    gpu = recording.peak(index)["gpu"] if count else None
    fixed = {
        "rank": rank["rank"] or 0,
        "world_size": rank["world_size"] or 1,
        "host": rank["host"] or None,
        "device": number,
        "gpu_bytes": gpu["total_bytes"] if gpu else None,
        "source": "recording",
        "labels": list(labels.items()),
    }
    columns = {
        "step": steps["step"],
        "time": pc.divide(steps["time_ns"], 1000).cast(pa.int64()),
        "category": steps["category"],
        "bytes": steps["bytes"],
        "allocated_bytes": steps["allocated"],
        "reserved_bytes": steps["most_reserved"],
        "ooms": steps["ooms"],
    }
    # Some columns are chunks.
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.array([fixed[field.name]] * count, field.type)
        for field in schema(pa)
    ]
    return pa.table(arrays, schema=schema(pa))


def export(
    recording: Recording, folder: str, run: str, labels: Mapping[str, str] | None = None
) -> list[str]:
    """Writes the rows of RECORDING into the fleet's FOLDER, a path or URI, as RUN: a file a
    rank, which replaces that of an earlier export.  Returns the files.

    Raises ValueError for a run's or label's name, memlab.Error without pyarrow, for a
    recording without steps, and as write() does.
    """
    pa = recording_tables.package("pyarrow", f"{folder}: writing Parquet")
    run, labels = check_run(run), check_labels(labels)
    written = []
    for rank in merged.ranks_of(recording):
        parts = [_rows(pa, recording, rank, device, labels) for device in rank["devices"]]
        rows = pa.concat_tables(parts) if parts else schema(pa).empty_table()
        if len(rows):
            written.append(write(pa, rows, folder, run, f"rank{rank['rank'] or 0}.parquet"))
    if not written:
        raise Error(f"run {run}: the recording has no event of a device: nothing to export")
    return written
