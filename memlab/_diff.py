"""`memlab diff`: what of one run's memory is more, and what less, than of another's.

Owns which instants are compared, and the words; all figures are the core's.
"""

from __future__ import annotations

import os

from memlab import _instant, _load, _merge, _report
from memlab._errors import Error
from memlab._instant import Instant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import Diff
    from memlab._core import _Path

__all__ = ["diff", "text"]

_ROWS = 15
_PHASE_ROWS = 5
# Of the headline: so many lines, and none whose part is less than this share of the first.
_HEADLINE = 3
_WORTH_IT = 0.05

_MOVES = {
    "freed_later": "moved: freed later",
    "freed_earlier": "moved: freed earlier",
    "allocated_earlier": "moved: allocated earlier",
    "allocated_later": "moved: allocated later",
}
# Which instant it is, by its kind.
_WHERE = {
    "peak": "at the peak",
    "start": "at the start",
    "end": "at the end",
    "step": "at the peak of the step",
    "time": "then",
    "event": "then",
}
# Of a line that is not where it was.
_MATCHED_BY = {
    "order": "was line {line}",
    "function": "was {function}, line {line}",
    "file": "was {file}:{line}",
    "module": "was {file}:{line}, matched by what ran there alone",
}


# ---- What is compared ----


def _device(recording, path, device, rank):
    """The index of the device of RECORDING to look at: DEVICE of it, or of RANK; None: of
    those the fullest."""
    known = _report.devices(recording)
    if rank is not None:
        row = next((r for r in recording.ranks() if r["rank"] == rank), None)
        if row is None:
            there = [r["rank"] for r in recording.ranks() if r["rank"] is not None]
            raise Error(
                f"{path}: no rank {rank} in it; it has "
                + (", ".join(map(str, there)) or "no ranks: merge the files first")
            )
        own = [d["device"] for d in row["devices"]]
        known = [i for i in own if i in known]
        if device is not None:
            own = [d["device"] for d in row["devices"] if d["number"] == device]
            if not own:
                raise Error(f"{path}: rank {rank} has no device {device}")
            return own[0]
    elif device is not None:
        if device >= recording.device_count:
            raise Error(
                f"{path}: no device {device}; it has {recording.device_count}, from 0"
            )
        return device
    if not known:
        raise Error(f"{path}: no memory was allocated while recording")
    return max(known, key=lambda i: recording.peak(i)["peak"]["allocated_bytes"])


def diff(
    before: _Path,
    after: _Path | None = None,
    *,
    at: tuple[Instant, Instant] = (Instant("peak"), Instant("peak")),
    ranks: tuple[int, int] | None = None,
    device: int | None = None,
) -> Diff:
    """What of the run in the file AFTER is more than of that in BEFORE, and what less.

    BEFORE and AFTER are paths as memlab.load() takes them; without AFTER two instants, or
    two ranks of a merged file, of BEFORE are compared. at: the instant of each; where both
    are steps, phases are looked for in these. ranks: a rank of each. device: its index, the
    same of both; None: of each the one that was fullest. The answer is a dict, described in
    docs/REPORT.md, sizes in bytes, times in unix microseconds.

    Raises memlab.Error for what a file does not have, SnapshotError for what is no
    recording, OSError, ValueError.
    """
    paths = [os.fsdecode(before), os.fsdecode(before if after is None else after)]
    first = _load.read_recording(paths[0])
    second = first if after is None else _load.read_recording(paths[1])
    devices, events = [], []
    for side, recording in enumerate((first, second)):
        rank = None if ranks is None else ranks[side]
        devices.append(_device(recording, paths[side], device, rank))
        events.append(_instant.event(recording, devices[side], at[side]))
    difference = first.difference(
        devices[0],
        second,
        devices[1],
        event=events[0],
        after_event=events[1],
        same_code=after is None,
        phases=True,
        one_step=at[0].kind == at[1].kind == "step",
    )
    sides: list[Any] = [
        {
            "file": paths[i],
            "at": str(at[i]),
            "device": devices[i],
            "name": of.device_name(devices[i]),
        }
        for i, of in enumerate((first, second))
    ]
    return {"before": sides[0], "after": sides[1], "difference": difference}


# ---- Words ----


def _change(row):
    return _MOVES.get(row["move"], row["change"])


def _place(row):
    """Where ROW is, unescaped, and where it was, if elsewhere."""
    if not row["file"]:
        place = f"({row['reason']})" if row["reason"] else "(no line)"
    else:
        place = f"{_report.shorten(row['file'])}:{row['line']} {row['function']}"
    if row["module"]:
        place += f" [{row['module']}]"
    if row["phase"] == "backward" and row["file"]:
        place += " (backward)"
    if row["change"] != "gone" and row["matched_by"] in _MATCHED_BY:
        place += " (" + _MATCHED_BY[row["matched_by"]].format(
            file=_report.shorten(row["before_file"]),
            line=row["before_line"],
            function=row["before_function"],
        ) + ")"
    return place


def _amounts(part):
    return (
        f"{_report.size(part['before_bytes'])} -> {_report.size(part['after_bytes'])}"
    )


def headline(answer: Diff) -> str:
    """A sentence on what differs at the instants of ANSWER, unescaped."""
    whole = answer["difference"]
    rows = whole["by_line"]
    where = _WHERE[answer["after"]["at"].partition(":")[0]]
    more = whole["difference_bytes"]
    if not rows and not more:
        return f"The same memory {where}: {_report.size(whole['after_bytes'])}."
    if more:
        rows = [row for row in rows if (row["difference_bytes"] > 0) == (more > 0)]
        start = f"{_merge._signed(more)} {where}"
    else:
        start = f"As much {where}, of other memory"
    told = [
        row for row in rows[:_HEADLINE]
        if abs(row["difference_bytes"]) >= _WORTH_IT * abs(rows[0]["difference_bytes"])
    ]
    words = [
        f"{_place(row)} ({_change(row)}, "
        f"{_report.size(abs(row['difference_bytes']))})"
        for row in told
    ]
    left = len(whole["by_line"]) - len(told)
    if left:
        words.append(f"and {left} more line" + "s" * (left != 1))
    was, now = whole["before"]["phase"], whole["after"]["phase"]
    if was != now and "unknown" not in (was, now):
        start += f", now in phase {now}, before in {was}"
    return f"{start}: " + ", ".join(words)


def _sides(answer):
    for key in ("before", "after"):
        side, at = answer[key], answer["difference"][key]
        yield (
            f"  {key + ':':8}{_report.shorten(side['file'])} {side['name']}, "
            f"step {at['step']}"
        )


def _rows(part, most, indent):
    rows = [
        (
            _merge._signed(row["difference_bytes"]),
            _change(row),
            _amounts(row),
            row["category"].replace("_", " "),
            _report.escape(_place(row)),
        )
        for row in part["by_line"][:most]
    ]
    if rows:
        yield from _report._rows(rows, indent)
    rest = part["by_line"][most:]
    if rest:
        left = _merge._signed(sum(row["difference_bytes"] for row in rest))
        yield f"{indent}... and {len(rest)} more lines with {left}"


def _phases(answer):
    whole = answer["difference"]
    if whole["phases"]:
        yield from ("", "Where most was allocated in each phase")
    for phase in whole["phases"]:
        name = _report.escape(phase["phase"])
        if phase["before"] is None or phase["after"] is None:
            side = "before" if phase["after"] is None else "after"
            yield f"  {name}: only {side}, {_report.size(phase[side + '_bytes'])}"
            continue
        more = phase["difference_bytes"]
        words = _merge._signed(more) if more or phase["by_line"] else "the same"
        yield f"  {name}: {_amounts(phase)}, {words}"
        if phase["by_line"] != whole["by_line"]:
            yield from _rows(phase, _PHASE_ROWS, "    ")
        elif phase["by_line"]:
            yield "    the same lines as above"
    if whole["phases_left_out"]:
        yield f"  ... and {whole['phases_left_out']} more names of phases"


def text(answer: Diff, lines: int = _ROWS) -> str:
    """ANSWER for people, with so many rows of the table of LINES."""
    whole = answer["difference"]
    out = [_report.escape(headline(answer))]
    out += [_report.escape(side) for side in _sides(answer)]
    out.append(f"  {_amounts(whole)}, {whole['difference_bytes']:+} bytes")
    if whole["by_line"]:
        out += ["", "By line", *_rows(whole, lines, "  ")]
    if whole["by_category"]:
        parts = sorted(whole["by_category"].items(), key=lambda item: -abs(item[1]))
        rows = [(_merge._signed(n), name.replace("_", " ")) for name, n in parts]
        out += ["", "By category", *_report._rows(rows)]
    out += _phases(answer)
    return "\n".join(out) + "\n"
