"""`memlab merge`: which rank of a merged recording stands out.

Owns the words of the table; all figures are the core's.
"""

from __future__ import annotations

import os

from memlab._files.merged import merge
from memlab._report.answer import Answer
from memlab._report.parts import Heading, Listing, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import MergedRanks
    from memlab._core import Recording
    from memlab._report.parts import Part

__all__ = ["merge", "ranks"]

# What of a difference is told: until the rest is this share of it, and no more than so many.
_REST = 0.1
_MOST = 5
_MISSING = 8


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
    Its str() is the text of `memlab merge`.  Raises MemoryError.
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
    answer: Any = {
        "ranks": rows,
        "world_size": world or None,
        "missing_ranks": [rank for rank in range(world) if rank not in known],
        "worst": worst["rank"] if worst else None,
        "compared_to": difference,
    }
    return Answer(answer, lambda answer: _sections(recording, answer))  # type: ignore[return-value]


# ---- Words ----


def _signed(count):
    return ("+" if count >= 0 else "-") + wording.size(abs(count))


def _name(row):
    if row["rank"] is None:
        return wording.escape(os.path.basename(row["file"])) or "this recording"
    return f"{row['called']} {row['rank']}"


def _plural(rows):
    """What ROWS are called together."""
    alone = all(row["called"] == "process" for row in rows)
    return "processes" if alone else "ranks"


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
    who = "process" if _plural(rows) == "processes" else "rank"
    yield (who, "device", "peak", "reserved", "against", "step", "at", "")
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
        used = [row for row in answer["ranks"] if row["device"] is not None]
        if len(used) == 2:
            yield Heading(f"All {_plural(used)} peak at {peak}, and with the same memory.")
        else:
            yield Heading(
                f"{_name(worst)} peaks at {peak}, and with the same memory as "
                f"{_name(other)}, the one in the middle."
            )
        return
    if whole:
        yield Heading(
            f"{_name(worst)} peaks at {peak}, {wording.size(whole)} more than "
            f"{_name(other)} ({whole} bytes):"
        )
    else:
        yield Heading(
            f"{_name(worst)} peaks at {peak} as {_name(other)} does, but by other memory:"
        )
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
    yield Table(("bytes", "category", "line"), rows)


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


def _sections(recording: Recording, answer: MergedRanks) -> list[list[Part]]:
    """The table of RECORDING's ranks, and why the highest is higher."""
    rows: list[Any] = answer["ranks"]
    said = f"{_plural(rows).capitalize()} by peak: {len(rows)}"
    if answer["missing_ranks"]:
        missing = ", ".join(map(str, answer["missing_ranks"][:_MISSING]))
        if answer["missing_ranks"][_MISSING:]:
            missing += f" and {len(answer['missing_ranks']) - _MISSING} more"
        said += f" of {answer['world_size']}, missing: {missing}"
    parts: list[Part] = [Heading(said, level=1)]
    parts.append(Listing(list(_columns(_table(answer, recording)))))
    if answer["compared_to"] is not None:
        parts += _why(answer)
    return [[*parts, Heading("Clocks"), Listing(list(_clocks(rows)))]]
