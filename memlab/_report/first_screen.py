"""The first screen: the peak, its parts, the verdict, and where to read on.

It has at most 24 lines of 80 columns; the full report has the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from memlab._report import modules, peaks
from memlab._report import verdict as _verdict
from memlab._report.parts import (
    Heading,
    Listing,
    Part,
    Said,
    Screen,
    Table,
    joined,
    true_peak,
)
from memlab._text import terminal, wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Peak, Verdict
    from memlab._core import Recording

LINES, COLUMNS = 24, Screen.COLUMNS
_ROWS = 10
# With fewer there is no room for a table of the kinds.
_LEAST_OF_TWO = 8
_KINDS_IN_LINE = 3
# With as many or fewer the rest of the peak is a large part of it.
_TELLING = 4
# A change that saves less than one part in so many of the peak is small.
_SMALL = 20
_OTHERS = 2
# A forward without a graph that makes so many is known to be an evaluation (stages.h).
_RUN_BLOCKS = 4
_NOT_KNOWN = ("unknown", "before recording")

_size = wording.size


class Device:
    """The screen's facts about one device, an index of the recording."""

    def __init__(self, recording: Recording, device: int, start: str | None = None) -> None:
        self.index = device
        self.name = wording.escape(recording.device_name(device))
        self.start = start
        self.source = recording.source
        self.verdict: Verdict = _verdict.of_device(recording, device, start)
        self.answer: Peak = recording.peak(device)
        self.modules = functools.cache(functools.partial(modules.rows, recording, device))

    @property
    def failed(self) -> bool:
        """Whether the device ran out of memory."""
        return any(item["kind"] in _verdict.FAILED for item in self.verdict["findings"])

    @property
    def grows(self) -> bool:
        """Whether memory grows by step."""
        return any(item["kind"] in _verdict.GROWS for item in self.verdict["findings"])

    @property
    def too_long(self) -> bool:
        """Whether changes would be told, but the recording is too long to try them here."""
        if self.verdict["tried"] or self.source == "cpu" or not self.verdict["findings"]:
            return False
        return self.verdict["make_fit"] is None and not self.grows

    @property
    def urgency(self) -> tuple[bool, int]:
        """Of several devices, the screen shows the one with the highest value."""
        return self.failed, self.verdict["peak"]["allocated_bytes"]

    def line(self) -> str:
        """The device in one line, beside the device that is shown."""
        peak = self.verdict["peak"]
        return f"{self.name}: {_amounts(self, peak)}" + ", ran out of memory" * self.failed


def _amounts(device, peak):
    allocated = f"{_size(peak['allocated_bytes'])} allocated"
    if device.source == "cpu":
        return allocated
    total = device.verdict["total_bytes"]
    of = f" of {_size(total)}" if total is not None else ""
    return f"{allocated}, {_size(peak['reserved_bytes'])} reserved{of}"


def _when(device):
    peak = device.verdict["peak"]
    moment = peak["moment"]
    words = [] if moment["step"] is None else [f"in step {moment['step']}"]
    if moment["phase"] is not None:
        words.append(f"in phase {wording.escape(moment['phase'])}")
    words.append(_verdict.stage(peak))
    where = _verdict.place(peak, device.start)
    words.append(where and f"at {where}")
    said = ", ".join(filter(None, words))
    return said[:1].upper() + said[1:]


def _consists(device, rows):
    whole = device.answer["peak"]["allocated_bytes"]
    groups = peaks.categories(device.answer)
    if not groups:
        return
    known = sum(count for count, name in groups if not name.startswith(_NOT_KNOWN))
    guessed = 2 * device.answer["inexact_category_bytes"] > known
    yield Heading("What it consists of" + (", estimated" if guessed else ""))
    of_modules = device.modules(rows // 2 if rows >= _LEAST_OF_TWO else max(rows - 1, 2))
    if of_modules:
        yield _table(
            "module", [(row["bytes"], modules.name(row)) for row in of_modules], whole
        )
        if rows < _LEAST_OF_TWO:
            kinds = [
                f"{wording.share(count, whole).strip()} {name}"
                for count, name in groups[:_KINDS_IN_LINE]
            ]
            yield Said(f"of these kinds: {', '.join(kinds)}")
            return
        yield Said("of these kinds:")
        rows -= rows // 2 + 1
    shown = groups[:rows]
    left = groups[rows:]
    if left:
        shown = [*shown[:-1], (sum(count for count, _ in [shown[-1], *left]), "other kinds")]
    yield _table("kind", shown, whole)


def _table(of, groups, whole):
    cells = [(_size(count), wording.share(count, whole), name) for count, name in groups]
    counts = [count for count, _ in groups]
    return Table(("bytes", "share", of), cells, counts, whole, names=of == "module")


def _unguarded(device):
    """What to try where most of the peak is temporary in a forward that makes a graph: what
    the graph alone keeps can only be told with the last uses."""
    peak = device.verdict["peak"]
    allocated = peak["allocated_bytes"]
    told = any(item["kind"] == "graph_unused" for item in device.verdict["changes"])
    # An estimate does not know an evaluation from a forward.
    guessed = 2 * device.answer["inexact_category_bytes"] > allocated
    if peak["stage"] != "forward" or told or guessed or device.failed:
        return
    lines = [
        line
        for line in device.answer["by_line"]
        if line["phase"] == "forward" and "temporary" in line["by_category"]
    ]
    count = sum(line["by_category"]["temporary"] for line in lines)
    if 2 * count >= allocated and sum(line["blocks"] for line in lines) >= _RUN_BLOCKS:
        yield Said(
            f"{wording.share(count, allocated).strip()} is temporary in a forward pass. If no "
            "backward pass follows it, as in an evaluation: with torch.no_grad()."
        )


def _judged(device, changes):
    sentences = _verdict.sentences(device.verdict)
    if sentences:
        yield Heading("Verdict: ", sentences[0])
        yield from map(Said, sentences[1:])
    fit = device.verdict["make_fit"]
    yield from map(Said, _verdict.fits(device.verdict))
    yield from _unguarded(device)
    lines = []
    for number, (first, second) in enumerate(_verdict.changes(device.verdict)[:changes], 1):
        lines += _broken(f"  {number}. {first}")
        # Code is to be pasted: whole, and in one line where that has room for it.
        place, between, code = second.partition(": ")
        if between and len(second) > COLUMNS - 2:
            lines += _broken(f"     {place}:")
            second = code
        indent = min(5, max(2, COLUMNS - len(second)))
        lines += _broken(" " * indent + second)
    if lines:
        yield Listing(lines)
    elif not sentences or fit is not None or device.grows:
        return
    elif device.verdict["tried"]:
        yield Said("No change found that lowers the peak by 1 % or more.")
        if not device.verdict["uses_known"]:
            yield Said("Not checked: memory held after its last use (memlab run --uses).")
    elif device.too_long:
        yield Said("Too long to try changes here: memlab explain does.")


def _broken(line):
    return terminal.fit(line, COLUMNS).split("\n")


def _of_ranks(recording):
    """Sentences about ranks of a RECORDING whose memory is incomplete."""
    ranks = recording.ranks()
    world = max((rank["world_size"] or 0 for rank in ranks), default=0)
    known = {rank["rank"] for rank in ranks}

    def those(state):
        found = [r for r in ranks if r["state"] == state and r["rank"] is not None]
        alone = [r["rank"] for r in found if r["called"] == "process"]
        return sorted({r["rank"] for r in found} - set(alone)), sorted(alone)

    for words, (found, alone) in (
        ("Ended by a signal or os._exit()", those("cut off")),
        ("Still being recorded", those("recording")),
        ("No recording", ([rank for rank in range(world) if rank not in known], [])),
    ):
        who = [f"rank{'s' * (len(found) > 1)} {wording.numbers(found)}"] * bool(found)
        who += [f"process{'es' * (len(alone) > 1)} {wording.numbers(alone)}"] * bool(alone)
        if len(ranks) > 1 and who:
            yield f"{words}: {', '.join(who)}"


def _parts(told, others, last, rows, changes, said):
    peak = told.verdict["peak"]
    parts: list[Part] = [
        Heading("Peak on ", told.name, f": {_amounts(told, peak)}", level=1)
    ]
    when = _when(told)
    if when:
        parts.append(Said(when))
    if told.answer["peak_before_window"]:
        parts.append(Said(true_peak(told.answer)))
    parts += [Said(device.line()) for device in others[:_OTHERS]]
    if others[_OTHERS:]:
        parts.append(Said(f"and {wording.plural(len(others) - _OTHERS, 'more device')}"))
    parts += map(Said, said)
    parts += _consists(told, rows)
    parts += _judged(told, changes)
    if last:
        parts.append(Listing(["", *last]))
    return parts


def _by_urgency(recording, devices, start=None):
    return sorted(
        (Device(recording, i, start) for i in devices),
        key=lambda device: device.urgency,
        reverse=True,
    )


def shown(recording: Recording, devices: Sequence[int]) -> int:
    """The one of DEVICES, indexes, that the screen shows."""
    return _by_urgency(recording, devices)[0].index


def _layouts(device):
    """Numbers of rows and changes, the largest screen first: a third change that saves little
    goes before the rows that say what most of the peak is."""
    peak, third = device.verdict["peak"], device.verdict["changes"][2:3]
    small = all(
        change[f"{of}_saving_bytes"] * _SMALL < peak[f"{of}_bytes"]
        for change in third
        for of in ("allocated", "reserved")
    )
    yield from ((rows, 3) for rows in range(_ROWS, _TELLING, -1))
    if small:
        yield from ((rows, 2) for rows in range(_ROWS, _TELLING, -1))
    yield from ((rows, min(rows, 3)) for rows in range(_TELLING, 1, -1))


def parts(
    recording: Recording,
    devices: Sequence[int],
    *,
    notes: Sequence[str] = (),
    last: Callable[[bool], Sequence[str]] = lambda explain: (),
    start: str | None = None,
) -> Screen:
    """The first screen of DEVICES, indexes, with the lines LAST(EXPLAIN) at its end; EXPLAIN:
    changes are still to be tried, by `memlab explain`.  It shows the device that ran out of
    memory, else that with the highest peak.  NOTES come
    first.  start: the folder to which paths are relative; None: the current one.
    """
    told, *others = _by_urgency(recording, devices, start)
    others = [each for each in others if any(each.urgency)]
    said = [*_of_ranks(recording)]
    end = last(told.too_long)
    for rows, changes in _layouts(told):
        made = _parts(told, others, end, rows, changes, said)
        if len(text([*notes], made).splitlines()) <= LINES:
            break
    return Screen(made)


def text(notes: Sequence[str], made: list[Part]) -> str:
    """NOTES and the result MADE of parts(), in lines of COLUMNS."""
    return terminal.fit(joined(notes, [made]), COLUMNS)
