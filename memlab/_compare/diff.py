"""`memlab diff`: how one run's memory differs from another's.

Owns the compared instants and the words; the core has the figures.
"""

from __future__ import annotations

from memlab import _core
from memlab._compare import merge
from memlab._errors import Error
from memlab._files import merged
from memlab._report import instant, peaks
from memlab._report.answer import Answer
from memlab._report.parts import Heading, Said, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import Diff
    from memlab._core import _Path
    from memlab._files.merged import AnyRecording
    from memlab._report.parts import Part

__all__ = ["diff", "headline", "sections"]

_ROWS = 15
_PHASE_ROWS = 5
# Most lines in the headline, and the least share of the first line's part for each.
_HEADLINE = 3
_WORTH_IT = 0.05

_MOVES = {
    "freed_later": "moved: freed later",
    "freed_earlier": "moved: freed earlier",
    "allocated_earlier": "moved: allocated earlier",
    "allocated_later": "moved: allocated later",
}
# The instant, by its kind.
_WHERE = {
    "peak": "at the peak",
    "start": "at the start",
    "end": "at the end",
    "step": "at the peak of the step",
    "time": "then",
    "event": "then",
}
# For a line that has moved.
_MATCHED_BY = {
    "order": "was line {line}",
    "function": "was {function}, line {line}",
    "file": "was {file}:{line}",
    "module": "was {file}:{line}, matched by what ran there alone",
}


# ---- What is compared ----


def _device(recording, path, number, rank):
    """The index of the device in RECORDING to compare: the fullest with that NUMBER and
    RANK; None: any.
    """
    try:
        found = peaks.choose_devices(recording, number, rank)
    except Error as error:
        raise Error(f"{path}: {error}") from None
    if not found:
        raise Error(f"{path}: {peaks.nothing(recording)}")
    if len(found) == 1:
        return found[0]
    return max(found, key=lambda i: recording.peak(i)["peak"]["allocated_bytes"])


class _Compared:
    """Two devices of recordings, or of one, each at an instant."""

    def __init__(self, before, after, at, ranks, device):
        first = merged.recorded(before)
        second = first if after is None else merged.recorded(after)
        self.recordings = first[0], second[0]
        names = first[1], second[1]
        self.sides: list[Any] = []
        events = []
        for side, recording in enumerate(self.recordings):
            index = _device(recording, names[side], device, None if ranks is None else ranks[side])
            events.append(instant.event(recording, index, at[side]))
            name = recording.device_name(index)
            self.sides.append(
                {"file": names[side], "at": str(at[side]), "device": index, "name": name}
            )
        one_step = at[0].kind == at[1].kind == "step"
        one_device = after is None and len({side["device"] for side in self.sides}) == 1
        self._options = {
            "event": events[0],
            "after_event": events[1],
            "same_code": after is None,
            # Each recording's phase is taken at its own peak in that phase.
            "phases": one_step or not one_device,
            "one_step": one_step,
        }

    def _ask(self, method, **more):
        before, after = self.recordings
        devices = self.sides[0]["device"], self.sides[1]["device"]
        return getattr(before, method)(
            devices[0], after, devices[1], **self._options, **more
        )

    def answer(self) -> Diff:
        """The output of `memlab diff --json`."""
        difference = self._ask("difference")
        return {
            "before": self.sides[0], "after": self.sides[1], "difference": difference
        }

    def page(self) -> bytes:
        """The same as an HTML page."""
        names = [f"{wording.shorten(s['file'])} {s['name']}" for s in self.sides]
        title = " and ".join(name.encode("utf-8", "replace").decode() for name in names)
        said = headline(self.answer()).encode("utf-8", "replace").decode()
        return self._ask("difference_page", title=title, said=said)


def diff(
    before: AnyRecording,
    after: AnyRecording | None = None,
    *,
    at: str | tuple[str, str] = "peak",
    ranks: tuple[int, int] | None = None,
    device: int | None = None,
    lines: int = _ROWS,
    html: _Path | None = None,
) -> Diff:
    """How the memory of one run differs from that of another, line by line.

    before, after: what memlab.open() takes or gives, or a MemorySnapshot.  Without after,
    two instants or two ranks of before are compared.  at: the instant, as for
    Recording.at(), or one for each; if both are steps, phases are those of these steps.
    ranks: a rank of each.  device: its number in its process, the same for both; None: the
    fullest device of each.  lines: rows of the text's table by line.  html: a file to write
    the comparison to as a page.

    Returns a dict, described in docs/REPORT.md: sizes in bytes, times in unix
    microseconds.  Its str() is the text of `memlab diff`.

    Raises memlab.Error if a recording lacks the requested part, ValueError for an invalid
    instant or without anything to compare, and what memlab.open() raises.
    """
    both = (at, at) if isinstance(at, str) else (at[0], at[1])
    if after is None and both[0] == both[1] and ranks is None:
        raise ValueError("one recording: name a second, or two instants or ranks of it")
    first, second = map(instant.parse, both)
    compared = _Compared(before, after, (first, second), ranks, device)
    if html is not None:
        _core.write_file(html, compared.page())
    return Answer(compared.answer(), lambda answer: sections(answer, lines))  # type: ignore[return-value]


# ---- Words ----


def _change(row):
    return _MOVES.get(row["move"], row["change"])


def _place(row):
    """ROW's place, unescaped, and its earlier place, if different."""
    if not row["file"]:
        place = f"({row['reason']})" if row["reason"] else "(no line)"
    else:
        place = f"{wording.shorten(row['file'])}:{row['line']} {row['function']}"
    if row["module"]:
        place += f" [{row['module']}]"
    if row["phase"] == "backward" and row["file"]:
        place += " (backward)"
    if row["change"] != "gone" and row["matched_by"] in _MATCHED_BY:
        place += " (" + _MATCHED_BY[row["matched_by"]].format(
            file=wording.shorten(row["before_file"]),
            line=row["before_line"],
            function=row["before_function"],
        ) + ")"
    return place


def _amounts(part):
    return (
        f"{wording.size(part['before_bytes'])} -> {wording.size(part['after_bytes'])}"
    )


def _headline(answer):
    """The difference at ANSWER's instants, in words, and its lines."""
    whole = answer["difference"]
    rows = whole["by_line"]
    where = _WHERE[answer["after"]["at"].partition(":")[0]]
    more = whole["difference_bytes"]
    if not rows and not more:
        return f"The same memory {where}: {wording.size(whole['after_bytes'])}", ""
    if more:
        rows = [row for row in rows if (row["difference_bytes"] > 0) == (more > 0)]
        start = f"{merge._signed(more)} {where}"
    else:
        start = f"As much {where}, of other memory"
    was, now = whole["before"]["phase"], whole["after"]["phase"]
    if was != now and "unknown" not in (was, now):
        start += f", now in phase {now}, before in {was}"
    told = [
        row for row in rows[:_HEADLINE]
        if abs(row["difference_bytes"]) >= _WORTH_IT * abs(rows[0]["difference_bytes"])
    ]
    words = [
        f"{_place(row)} ({_change(row)}, "
        f"{wording.size(abs(row['difference_bytes']))})"
        for row in told
    ]
    left = len(whole["by_line"]) - len(told)
    if left:
        words.append(f"and {left} more line" + "s" * (left != 1))
    return f"{start}: ", ", ".join(words)


def headline(answer: Diff) -> str:
    """A sentence on the difference at ANSWER's instants, unescaped."""
    return "".join(_headline(answer)) + "."


def _table(part, most):
    rows = [
        (
            merge._signed(row["difference_bytes"]),
            _change(row),
            _amounts(row),
            row["category"].replace("_", " "),
            wording.escape(_place(row)),
        )
        for row in part["by_line"][:most]
    ]
    if rows:
        columns = ("bytes", "change", "before -> after", "category", "line")
        yield Table(columns, rows, names=True)
    rest = part["by_line"][most:]
    if rest:
        left = merge._signed(sum(row["difference_bytes"] for row in rest))
        yield Said(f"... and {len(rest)} more line{'s' * (len(rest) > 1)} with {left}")


def _phase(whole, phase):
    name = wording.escape(phase["phase"])
    if phase["before"] is None or phase["after"] is None:
        side = "before" if phase["after"] is None else "after"
        yield Heading(
            "Phase ", name, f": only {side}, {wording.size(phase[side + '_bytes'])}",
            detail=True,
        )
        return
    more = phase["difference_bytes"]
    words = merge._signed(more) if more or phase["by_line"] else "the same"
    said = f" where it has most: {_amounts(phase)}, {words}"
    yield Heading("Phase ", name, said, detail=True)
    if phase["by_line"] != whole["by_line"]:
        yield from _table(phase, _PHASE_ROWS)
    elif phase["by_line"]:
        yield Said("The same lines as above.")


def sections(answer: Diff, lines: int = _ROWS) -> list[list[Part]]:
    """ANSWER as text, with that many rows in the table of LINES."""
    whole = answer["difference"]
    start, told = _headline(answer)
    parts: list[Part] = [Heading(start, wording.escape(told), level=1)]
    for key in ("before", "after"):
        side, at = answer[key], answer["difference"][key]
        words = f"{wording.shorten(side['file'])} {side['name']}"
        size = wording.size(whole[key + "_bytes"])
        after = f", step {at['step']}: {size} ({whole[key + '_bytes']} bytes)"
        parts.append(Said(key.capitalize() + ": ", wording.escape(words), after))
    if whole["by_line"]:
        parts += [Heading("By line"), *_table(whole, lines)]
    if whole["by_category"]:
        items = sorted(whole["by_category"].items(), key=lambda item: -abs(item[1]))
        rows = [(merge._signed(n), name.replace("_", " ")) for name, n in items]
        parts += [Heading("By category", detail=True), Table(("bytes", "category"), rows)]
    for phase in whole["phases"]:
        parts += _phase(whole, phase)
    if whole["phases_left_out"]:
        parts.append(Said(f"... and {whole['phases_left_out']} more names of phases"))
    return [parts]
