"""`memlab merge`: the recordings of several ranks as one, and the rank that stands out.

Owns which files belong to which rank, and the words of the table; the core has the
figures.
"""

from __future__ import annotations

import os
import re

from memlab import _core
from memlab._errors import Error
from memlab._files import load
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from memlab._answers import MergedRanks
    from memlab._core import Recording, _Path

__all__ = ["merge", "ranks"]

# In a folder, the first of these that a rank has is read: a .mlab file has every event.
_ENDINGS = (".mlab", ".pickle", ".pickle.gz")
_RANK = re.compile(r"rank[_-]?(\d{1,9})(?!\d)")
# A difference is listed until this share of it is left, up to that many lines.
_REST = 0.1
_MOST = 5
_MISSING = 8


def _rank_in(name):
    """The rank in a file's NAME, as in rank3.mlab; -1: none."""
    found = _RANK.findall(name)
    return int(found[-1]) if found else -1


def _in_folder(folder):
    """The recordings of the ranks in FOLDER, one per rank.

    A name that consists only of the rank's comes first; otherwise there must be one, as
    trainers' callbacks write it.  The same name with several endings is one recording.
    """
    stems = {}
    for name in sorted(os.listdir(folder)):
        ending = next((e for e in _ENDINGS if name.endswith(e)), None)
        if ending is not None and not name.startswith("."):
            stems.setdefault(name[: -len(ending)], set()).add(ending)
    # Other ranks' names are rank 0's with "_rank1" and so on added, as in
    # names.apart().
    first = {stem.rpartition("_rank")[0] for stem in stems if re.search(r"_rank\d+$", stem)}
    found = {}
    for stem, endings in stems.items():
        rank = 0 if stem in first else _rank_in(stem)
        if rank >= 0:
            found.setdefault(rank, {})[stem] = endings
    if not found:
        raise Error(
            f"{folder}: no recording of a rank here (a name such as rank0.mlab, rank0.pickle "
            "or rank0.4.memory_snapshot.pickle): name the files themselves"
        )
    return [
        os.path.join(folder, _one_of(folder, rank, found[rank])) for rank in sorted(found)
    ]


def _one_of(folder, rank, stems):
    """The name of RANK's recording among STEMS, each with its endings."""
    named = [stem for stem in stems if re.fullmatch(r"rank\d+", stem)] or list(stems)
    if len(named) > 1:
        raise Error(
            f"{folder}: rank {rank} has {len(named)} recordings, {named[0]} and {named[1]} "
            "among them: name the files themselves, one a rank"
        )
    return named[0] + next(e for e in _ENDINGS if e in stems[named[0]])


def _paths(arguments):
    for path in arguments:
        path = os.fsdecode(path)
        if os.path.isdir(path):
            yield from _in_folder(path)
        else:
            yield path


class _Seen:
    """Each rank's file: two files of one rank are not of one run."""

    def __init__(self):
        self.files = {}

    def check(self, rank, path):
        if rank in self.files:
            raise Error(
                f"rank {rank} is in {self.files[rank]} and in {path}: merge one file a "
                "rank, of one run"
            )
        self.files[rank] = path


def _each(paths):
    """(recording, file, rank) of each of PATHS, for the core."""
    seen = _Seen()
    for path in paths:
        recording = load.read_recording(path)
        named = _rank_in(os.path.basename(path))
        known = [r["rank"] for r in recording.ranks()] or [None]
        for rank in known:
            rank = named if rank is None and len(known) == 1 else rank
            if rank is not None and rank >= 0:
                seen.check(rank, path)
        # Names of files may be any bytes; the core takes text.
        yield recording, path.encode("utf-8", "backslashreplace").decode(), named
        del recording  # or it would coexist with the next one


def merge(paths: Sequence[_Path]) -> Recording:
    """One recording of several ranks' files, or of folders with such files.

    PATHS: .mlab files, snapshot pickles, or folders in which each rank has a file whose
    name has its number, as in rank0.mlab.  Every device of every rank becomes a device,
    and clocks are aligned (docs/TRAINERS.md).  One file is read at a time.  Raises
    memlab.Error for two files of one rank, SnapshotError for a file that is no
    recording, OSError, and ValueError for recordings of different sources.
    """
    return _core.merge(_each(list(_paths(paths))))


def read_all(paths: Sequence[str]) -> Recording:
    """The recording in the file at the only path of PATHS, or the result of merge() for
    several.

    Raises the errors of merge().  The caller reports unreadable parts of a single file.
    """
    if len(paths) == 1:
        return load.read_recording(paths[0], quiet=True)
    return _core.merge(_each(paths))


def read(path: _Path) -> Recording:
    """The same for PATH, a file, or a folder with all its ranks."""
    return read_all([*_paths([path])])


# ---- The table ----


def _rank_rows(recording):
    """A dict per rank, with what needs no other rank; and its peak answer, or None."""
    for known in recording.ranks():
        peaks = [recording.peak(d["device"]) for d in known["devices"]]
        top = max(peaks, key=lambda p: p["peak"]["allocated_bytes"], default=None)
        at = top["peak"] if top else None
        yield {
            **known,
            "device": top["device"] if top else None,
            "peak_allocated_bytes": at["allocated_bytes"] if top else 0,
            "peak_reserved_bytes": at["reserved_bytes"] if top else 0,
            "peak_time_us": at["time_us"] if top else None,
            "peak_step": top["moment"]["step"] if top else None,
            "dropped_events": sum(p["dropped_events"] for p in peaks),
            "peak_before_window": any(p["peak_before_window"] for p in peaks),
        }


def ranks(recording: Recording) -> MergedRanks:
    """The ranks of a merged RECORDING by peak, and why the highest is higher.

    A dict, described in docs/REPORT.md; sizes are in bytes, times in unix microseconds.
    Raises MemoryError.
    """
    rows = list(_rank_rows(recording))
    rows.sort(key=lambda row: -row["peak_allocated_bytes"])  # ranks are in order
    used = [row for row in rows if row["device"] is not None]
    worst = used[0] if used else None
    # The lower of the two medians: with two ranks, the other one.
    middle = used[len(used) // 2] if used else None
    difference = None
    if len(used) > 1:
        difference = {
            "rank": middle["rank"],
            "file": middle["file"],
            **recording.difference(
                middle["device"], recording, worst["device"], same_code=True
            ),
        }
    known = {row["rank"] for row in rows} - {None}
    world = max((row["world_size"] or 0 for row in rows), default=0)
    return {
        "ranks": rows,
        "world_size": world or None,
        "missing_ranks": [rank for rank in range(world) if rank not in known],
        "worst": worst["rank"] if worst else None,
        "compared_to": difference,
    }


# ---- Words ----


def _signed(count):
    return ("+" if count >= 0 else "-") + wording.size(abs(count))


def _name(row):
    if row["rank"] is None:
        return wording.escape(os.path.basename(row["file"]))
    return f"rank {row['rank']}"


def _seconds(count):
    return f"+{count / 1e6:.3f} s"


def _table(answer, recording):
    rows = answer["ranks"]
    hosts = {row["host"] for row in rows}
    starts = [row["peak_time_us"] for row in rows if row["peak_time_us"] is not None]
    first = min(starts, default=0)
    middle = answer["compared_to"]
    base = next(
        (r for r in rows if middle and r["file"] == middle["file"] and
         r["rank"] == middle["rank"]),
        None,
    )
    yield ("rank", "device", "peak", "reserved", "against", "step", "at", "")
    for row in rows:
        if row["device"] is None:
            yield (_name(row), "-", "-", "-", "-", "-", "-", "no memory recorded")
            continue
        number = next(
            d["number"] for d in row["devices"] if d["device"] == row["device"]
        )
        more = row["peak_allocated_bytes"] - (base or row)["peak_allocated_bytes"]
        yield (
            _name(row),
            f"{recording.source or 'cuda'}:{number}",
            wording.size(row["peak_allocated_bytes"]),
            wording.size(row["peak_reserved_bytes"]),
            _signed(more) if more else "-",
            "-" if row["peak_step"] is None else str(row["peak_step"]),
            _seconds(row["peak_time_us"] - first),
            "; ".join(_remarks(row, len(hosts) > 1)),
        )


def _remarks(row, several_hosts):
    if several_hosts and row["host"]:
        yield wording.escape(row["host"])
    if row["state"] == "cut off":
        yield "its process was killed"
    elif row["state"] == "recording":
        yield "still being recorded"
    if row["dropped_events"]:
        yield f"{row['dropped_events']} events dropped: too low"
    if row["peak_before_window"]:
        yield "its true peak was before the events kept"


def _columns(rows):
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        cells += [cell.rjust(widths[i]) for i, cell in enumerate(row[2:-1], 2)]
        yield ("  " + "  ".join([*cells, row[-1]])).rstrip()


def _line_words(line):
    kind = line["category"].replace("_", " ")
    if line["file"]:
        place = f"{wording.shorten(line['file'])}:{line['line']} {line['function']}"
        if line["module"]:
            place += f" [{line['module']}]"
        if line["phase"] == "backward":
            place += " (backward)"
    else:
        place = f"({line['reason']})" if line["reason"] else "(no line)"
        if line["module"]:
            place += f" [{line['module']}]"
    return kind, wording.escape(place)


def _shown(lines, whole):
    """How many of LINES to list: until little of the WHOLE is left."""
    rest = whole
    for count, line in enumerate(lines[:_MOST]):
        if abs(rest) <= _REST * abs(whole):
            return count
        rest -= line["difference_bytes"]
    return min(len(lines), _MOST)


def _why(answer):
    difference = answer["compared_to"]
    worst = next(r for r in answer["ranks"] if r["device"] is not None)
    other = next(
        r for r in answer["ranks"]
        if r["file"] == difference["file"] and r["rank"] == difference["rank"]
    )
    whole = difference["difference_bytes"]
    peak = wording.size(worst["peak_allocated_bytes"])
    if not whole and not difference["by_line"]:
        ranks = sum(row["device"] is not None for row in answer["ranks"])
        if ranks == 2:
            yield f"All ranks peak at {peak}, and with the same memory."
        else:
            yield (
                f"{_name(worst)} peaks at {peak}, and with the same memory as "
                f"{_name(other)}, the one in the middle."
            )
        return
    if whole:
        yield (
            f"{_name(worst)} peaks at {peak}, {wording.size(whole)} more than "
            f"{_name(other)} ({whole} bytes):"
        )
    else:
        yield f"{_name(worst)} peaks at {peak} as {_name(other)} does, but by other memory:"
    lines = difference["by_line"]
    count = _shown(lines, whole) if whole else min(len(lines), _MOST)
    rows = [
        (_signed(line["difference_bytes"]), *_line_words(line))
        for line in lines[:count]
    ]
    left = lines[count:]
    if left:
        rest = sum(line["difference_bytes"] for line in left)
        word = "lines" if len(left) != 1 else "line"
        rows.append((_signed(rest), "", f"in {len(left)} more {word}"))
    yield from wording.aligned(rows)


_METHODS = {
    "": "{who}: its clock was not set",
    "reference": "{who}: the clock that the others are set to",
    "same_host": "{who}: the same kernel's clock{bound}",
    "steps": "{who}: set by {steps} ends of steps, moved by {offset}{bound}",
    "wall_clock": "{who}: by its own wall clock; how far that is off is not known",
}


def _nanoseconds(count):
    if abs(count) < 1_000_000:
        return f"{count / 1e3:.1f} us"
    return f"{count / 1e6:.1f} ms" if abs(count) < 10**9 else f"{count / 1e9:.3f} s"


def _clocks(rows):
    for row in sorted(rows, key=lambda r: (r["rank"] is None, r["rank"] or 0)):
        clock = row["clock"]
        bound = clock["bound_ns"]
        words = ""
        if bound is not None:
            words = f"; the two tell one moment {_nanoseconds(bound)} apart"
        if clock["method"] == "steps" and bound is not None:
            words = f"; nine in ten then agree within {_nanoseconds(bound)}"
        yield "  " + _METHODS[clock["method"]].format(
            who=_name(row),
            bound=words,
            steps=clock["common_steps"],
            offset=_nanoseconds(-clock["offset_ns"]),
        )


def text(recording: Recording, answer: MergedRanks | None = None) -> str:
    """The table of RECORDING's ranks as text, and why the highest is higher."""
    answer = answer or ranks(recording)
    rows: list[Any] = answer["ranks"]
    out = [f"Ranks by peak: {len(rows)}"]
    if answer["missing_ranks"]:
        missing = ", ".join(map(str, answer["missing_ranks"][:_MISSING]))
        if answer["missing_ranks"][_MISSING:]:
            missing += f" and {len(answer['missing_ranks']) - _MISSING} more"
        out[0] += f" of {answer['world_size']}, missing: {missing}"
    out += _columns(_table(answer, recording))
    if answer["compared_to"] is not None:
        out += ["", *_why(answer)]
    out += ["", "Clocks", *_clocks(rows)]
    return "\n".join(out) + "\n"
