"""A report of one device as headings, sentences and tables.

Owns the words and their order; other files render them as plain text, in colour or in
Markdown. All text is for people: its names are already escaped for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from memlab._report import instant as _instant
from memlab._report import model_lines, peaks, stack_lines
from memlab._report import modules as _rolled
from memlab._report import oom as _oom
from memlab._report import verdict as _verdict
from memlab._report.instant import Instant
from memlab._text import terminal, wording
from memlab._text.code import Code
from memlab._text.wording import duration, escape, share, size

TABLES = ("line", "module", "category", "stack", "size")

_SOURCE_SHOWN = 60
_FRAMES_SHOWN = 20


class Heading(NamedTuple):
    """name: a recording's own name, within memlab's words.  level: 1: a device; 2: a
    part of it. detail: of less interest than the others.
    """

    before: str
    name: str = ""
    after: str = ""
    level: int = 2
    detail: bool = False

    @property
    def text(self) -> str:
        """The whole heading."""
        return self.before + self.name + self.after


class Said(NamedTuple):
    """A sentence below a heading; name as in Heading."""

    before: str
    name: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        """The whole sentence."""
        return self.before + self.name + self.after


class Table(NamedTuple):
    """Rows of cells; a row's last cell may have several lines.  counts: by row, the
    bytes whose share of WHOLE is in the second column.  names: the last column has the
    program's names.  headed: text shows the column titles too, because the cells do not
    explain themselves.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | list[str]]]
    counts: Sequence[int] = ()
    whole: int = 0
    names: bool = False
    headed: bool = False

    def lines(self) -> list[Sequence[str | list[str]]]:
        """The rows as in text."""
        return [self.columns, *self.rows] if self.headed else list(self.rows)


class Listing(NamedTuple):
    """Lines with a fixed layout."""

    lines: Sequence[str]


Part = Heading | Said | Table | Listing


class Screen(list[Part]):
    """The parts of a first screen, whose plain text has at most COLUMNS in a line."""

    COLUMNS = 80


class Choice(NamedTuple):
    """The selected contents of a device's report.

    by: the only tables to show, of TABLES; empty: the usual ones.  lines: most rows of
    a table.  start: the folder to which paths are relative.  functions: functions to
    show line by line; None: none. source: a folder with the program's files.
    """

    instant: Instant = Instant("peak")
    by: Sequence[str] = ()
    lines: int = 15
    start: str | None = None
    functions: Sequence[str] | None = ()
    source: str | None = None

    @property
    def usual(self) -> bool:
        """Whether this is the peak with the usual tables."""
        return self.instant.kind == "peak" and not self.by


def choose(at="peak", by=(), *, functions=(), **more) -> Choice:
    """The Choice of these, AT as for instant.parse().  Raises ValueError for invalid
    values, and for functions at another instant than the peak.
    """
    by = tuple(dict.fromkeys(wording.names(by)))
    choice = Choice(_instant.parse(at), by, functions=functions, **more)
    for name in choice.by:
        if name not in TABLES:
            raise ValueError(f"no table by {name!r}: there are {', '.join(TABLES)}")
    if functions and not choice.usual:
        raise ValueError("functions are shown line by line at the peak, without by")
    return choice


def sections(recording, devices, choice, oom=True) -> Iterator[list[Part]]:
    """The report of each of DEVICES.  If OOM requests it and the choice is the usual
    one, each device's last out of memory follows.
    """
    answers = {i: peaks.answer_at(recording, i, choice.instant) for i in devices}
    code = Code(recording, choice.source)
    tables = {}
    if choice.usual and choice.functions is not None:
        tables = stack_lines.tables(recording, answers, choice.functions, code)
    for i, answer in answers.items():
        yield list(of_device(recording, i, answer, choice, code, tables.get(i, ())))
    if oom and choice.usual:
        for text in (_oom.text(recording, i, choice.start) for i in devices):
            if text:
                yield [Listing(text.removesuffix("\n").split("\n"))]


def of_device(recording, device, answer, choice, code, tables) -> Iterator[Part]:
    """The report of DEVICE.  ANSWER: of Recording.peak() at the instant of CHOICE;
    CODE: the text of lines; TABLES: the functions to show line by line.
    """

    def lines(answer, choice):
        return _by_line(answer, choice, code)

    yield from _head(recording, device, answer, choice.instant)
    yield from map(Said, _caveats(answer, choice.instant))
    makers = {
        "category": _categories, "module": _modules, "line": lines, "stack": _stacks,
        "size": _sizes,
    }
    if choice.by:
        for name in choice.by:
            yield from makers[name](answer, choice)
        return
    yield from _categories(answer, choice)
    yield from _phases(answer)
    if _rolled.of_answer(answer):
        yield from _modules(answer, choice)
    yield from lines(answer, choice)
    if choice.usual:
        yield from _growth(recording.growth(device), choice)
    if tables:
        whole = answer["peak"]["allocated_bytes"]
        named = bool(choice.functions)
        blank, title, *rows = stack_lines.text(tables, whole, named, choice.start)
        yield Heading(title, detail=True)
        yield Listing(rows)
    # The CPU reserves only what is allocated.
    if recording.source != "cpu":
        yield from _allocator(answer, choice.instant)
        yield from _whole_gpu(answer, choice.instant)


# ---- The instant ----


def _head(recording, device, answer, instant):
    name = escape(recording.device_name(device))
    whole = answer["peak"]["allocated_bytes"]
    kind, number = instant
    words = {
        "peak": "Peak on ",
        "start": "Before the first event on ",
        "end": "At the end on ",
        "step": f"Peak of step {number} on ",
        "event": f"After event {number} on ",
        "time": f"{_time(number)} after the first event, on ",
    }[kind]
    yield Heading(words, name, f": {size(whole)} allocated ({whole} bytes)", 1)
    moment = answer["moment"]
    step, phase = moment["step"], moment["phase"]
    if kind == "step" and step != number:
        # The device had no event in that step: the step is an earlier one.
        step = phase = None
    said = [] if step is None else [f"step {step}"]
    said += [] if phase is None else ["phase "]
    if said:
        words = f"{_then(instant, 'At the peak', 'Then')}: {', '.join(said)}"
        yield Said(words, escape(phase or ""))
    most = answer["whole_peak"]["allocated_bytes"]
    if kind != "peak" and most:
        yield Said(
            f"{share(whole, most).strip()} of the peak of the recording, {size(most)}"
        )


def _time(count):
    """COUNT microseconds, exactly."""
    if count < 1000:
        return f"{count} us"
    return f"{count / 1e3:g} ms" if count < 1_000_000 else f"{count / 1e6:.15g} s"


def _then(instant, at_the_peak, then):
    return at_the_peak if instant.kind == "peak" else then


def true_peak(answer):
    """Of an answer whose peak_before_window is true: a sentence on the peak that it lacks."""
    return (
        f"The true peak, {size(answer['whole_peak']['allocated_bytes'])}, came "
        "before the events that were kept: record again with a larger max_entries, or "
        "a file that keeps more"
    )


def _caveats(answer, instant):
    if answer["dropped_events"]:
        yield f"Events dropped: {answer['dropped_events']}; figures are too low"
    if answer["lost_stacks"]:
        yield f"Events whose stack was lost: {answer['lost_stacks']}"
    if answer["lost_names"]:
        yield f"Names that were lost, shown as <lost>: {answer['lost_names']}"
    if answer["peak_before_window"] and instant.kind == "peak":
        yield true_peak(answer)
    elif answer["overwritten_events"]:
        yield f"Older events overwritten: {answer['overwritten_events']}"
    if answer["uncertain_bytes"]:
        yield (
            f"Blocks from before the recording may be up to "
            f"{size(answer['uncertain_bytes'])} larger than shown"
        )
    if answer["mismatches"]:
        yield (
            "Events or blocks that do not fit the allocator's rules: "
            f"{answer['mismatches']}; figures are estimates"
        )


# ---- Tables of what was allocated ----


def _table(columns, groups, answer, cells, **more):
    """The Table of GROUPS: each one's bytes and share, then CELLS(group)."""
    whole = answer["peak"]["allocated_bytes"]
    counts = [group["bytes"] for group in groups]
    rows = [
        (size(count), share(count, whole), *cells(group))
        for count, group in zip(counts, groups, strict=True)
    ]
    return Table(("bytes", "share", *columns), rows, counts, whole, **more)


def _rest(groups, shown, noun):
    rest = groups[shown:]
    if rest:
        left = size(sum(group["bytes"] for group in rest))
        yield Said(f"... and {len(rest)} more {noun}{'s' * (len(rest) > 1)} with {left}")


def _blocks(group):
    return f"{group['blocks']} blocks" if group["blocks"] != 1 else "1 block"


def _categories(answer, choice):
    whole = answer["peak"]["allocated_bytes"]
    parts = peaks.categories(answer)
    rows = [(size(count), share(count, whole), name) for count, name in parts]
    if rows:
        yield Heading("By category")
        counts = [count for count, _ in parts]
        yield Table(("bytes", "share", "category"), rows, counts, whole)
    if answer["inexact_category_bytes"]:
        yield Said(
            f"{size(answer['inexact_category_bytes'])} estimated; the rest is exact"
        )


def _phases(answer):
    if answer["by_phase"]:
        items = sorted(answer["by_phase"].items(), key=lambda item: -item[1])
        yield Heading(f"By phase, in step {answer['step']}", detail=True)
        groups = [{"bytes": n, "name": name.replace("_", " ")} for name, n in items]
        yield _table(("phase",), groups, answer, lambda group: (group["name"],))


def _modules(answer, choice):
    if not choice.by:
        yield Heading("By module", detail=True)
        yield _table(
            ("module",), _rolled.of_answer(answer), answer,
            lambda row: (_rolled.name(row),), names=True,
        )
        return
    groups, shown = answer["by_module"], choice.lines
    yield Heading("By module")
    if groups:
        yield _table(
            ("module",), groups[:shown], answer,
            lambda group: (escape(group["module"] or f"({group['reason']})"),),
            names=True,
        )
    yield from _rest(groups, shown, "module")


def _by_line(answer, choice, code):
    lines, shown = answer["by_line"], choice.lines
    if not lines:
        return
    rows = [model_lines.Row(line) for line in lines]
    if not choice.by:
        rows = model_lines.rows(lines, answer["peak"]["allocated_bytes"])

    def cells(group):
        row = group["row"]
        place = escape(row.place(choice.start))
        if row.code is not None:
            said = code.line(*(row.code[key] for key in ("file", "function", "line")))
            place += f"    {_cut(escape(said.strip()))}" if said.strip() else ""
        return _blocks(row.figures), _kind(row.figures), place

    yield Heading("By line")
    columns = ("blocks", "category", "line")
    groups = [{"bytes": row.bytes, "row": row} for row in rows]
    yield _table(columns, groups[:shown], answer, cells, names=True)
    yield from _rest(groups, shown, "line")


_STEPS = {
    "steps": "step",
    "backward_passes": "backward pass",
    "module_calls": "call of the outermost module",
}


def _growth(growth, choice):
    growing, streams = growth["lines"], growth["workspaces"]
    if not growing and not streams:
        return
    shown = growing[: choice.lines]

    def cells(line):
        place = escape(wording.place({**line, "until_line": line["line"]}, choice.start))
        said = _verdict.held(line)
        if line["graph"]:
            said = ", ".join(filter(None, ("an autograd graph", said)))
        sure = "" if line["certain"] else "too few steps to tell"
        last = [place, *filter(None, (said, sure))]
        return size(line["bytes_per_step"]), str(line["since_step"]), str(line["steps"]), last

    yield Heading(f"What grows by {_STEPS[growth['steps_by']]}")
    columns = ("bytes a step", "since step", "steps", "line")
    if shown:
        yield Table(columns, [cells(line) for line in shown], names=True, headed=True)
    if growing[len(shown) :]:
        yield Said(f"... and {wording.plural(len(growing) - len(shown), 'more line')}")
    if streams:
        yield Said(streams["text"])


def _stacks(answer, choice):
    groups, shown = answer["by_stack"], choice.lines
    yield Heading("By stack")
    if groups:
        yield _table(
            ("blocks", "stack, innermost frame first"), groups[:shown], answer,
            lambda group: (_blocks(group), _frames(group, choice.start)), names=True,
        )
    yield from _rest(groups, shown, "stack")


def _frames(group, start):
    """The stack of GROUP, one line per frame."""
    frames = [
        escape(
            f"{wording.shorten(frame['filename'], start)}:{frame['line']} {frame['name']}"
        )
        for frame in group["frames"][:_FRAMES_SHOWN]
    ]
    backward = group["phase"] == "backward"
    if not frames:
        reason = group["reason"].removesuffix(" (backward)") or "no frames"
        return [f"(backward pass: {reason})" if backward else f"({reason})"]
    if backward:
        words = wording.HOW_WORDS.get(group["how"])
        frames[0] += f" (backward, {words})" if words else " (backward)"
    more = len(group["frames"]) - len(frames)
    if more:
        frames.append(f"... and {more} more frame{'s' * (more > 1)}")
    return frames


def _sizes(answer, choice):
    yield Heading("By size of the blocks")
    groups = answer["by_size"]
    if groups:
        yield _table(
            ("blocks", "each"), groups, answer,
            lambda group: (_blocks(group), _extent(group["least_bytes"])),
        )


def _extent(least):
    if not least:
        return "0 B"
    return f"{_power(least)} to below {_power(4 * least)}"


def _power(count):
    """As size(), for a power of 2 of bytes."""
    return size(count).replace(".00", "")


# ---- Beyond what was allocated ----


def _allocator(answer, instant):
    at, overhead = answer["peak"], answer["overhead"]
    yield Heading(_then(instant, "Allocator at the peak", "Allocator then"), detail=True)
    rows = [
        (size(at["reserved_bytes"]), "reserved from the device"),
        (size(at["active_bytes"]), "active: allocated, or waiting to be freed"),
        (size(overhead["inactive_bytes"]), "reserved but not in use"),
        (size(overhead["largest_free_bytes"]), "largest free block"),
        (size(overhead["slack_bytes"]), "lost to rounding inside blocks"),
        (
            f"{100 * overhead['fragmentation']:.1f} %",
            "fragmentation: share of free bytes outside the largest free block",
        ),
    ]
    yield Table(("bytes", "what"), rows)


# The lines of a whole GPU's account, in order, with their names for people.
_GPU_LINES = (
    ("torch_allocated_bytes", "torch: allocated"),
    ("torch_pending_free_bytes", "torch: freed, waiting for another stream"),
    ("torch_cached_bytes", "torch: reserved but not in use"),
    ("outside_at_start_bytes", "this process outside torch, at the start"),
    ("outside_first_step_bytes", "this process outside torch, added in the first step"),
    ("outside_later_bytes", "this process outside torch, added later"),
    ("other_processes_bytes", "other processes"),
    ("driver_bytes", "driver"),
    ("unknown_bytes", "unknown"),
)


def _whole_gpu(answer, instant):
    """The account of the device at the instant, and the host's memory then."""
    account, host = answer["gpu"], answer["host"]
    then = _then(instant, "at the peak", "then")
    if account is None and answer["gpu_reason"]:
        reason = escape(answer["gpu_reason"])
        yield Heading("The whole GPU was not sampled: ", reason, detail=True)
    if account is not None:
        used, lines = account["used_bytes"], account["lines"]
        title = f"The whole GPU {then}: {size(used)} used ({used} bytes)"
        yield Heading(title, detail=True)
        shown = [(lines[key], words) for key, words in _GPU_LINES if lines[key]]
        rows = [(size(count), share(count, used), words) for count, words in shown]
        if rows:
            counts = [count for count, _ in shown]
            yield Table(("bytes", "share", "whose"), rows, counts, used)
        unsaid = [words for key, words in _GPU_LINES if lines[key] is None]
        if unsaid:
            yield Said("Not reported by the driver, part of unknown: " + "; ".join(unsaid))
        yield Said("Outside torch as sampled " + _apart(account["after_us"], instant))
    if host is not None and account is not None:
        title = "The host, as sampled " + _apart(host["after_us"], instant)
        yield Heading(title, detail=True)
        rows = (
            (host["rss_bytes"], "resident"),
            (host["pinned_allocated_bytes"], "pinned by torch, in use"),
            (host["pinned_reserved_bytes"], "pinned by torch, with its cache"),
        )
        rows = [(size(count), words) for count, words in rows if count is not None]
        if rows:
            yield Table(("bytes", "what"), rows)
        if host["pinned_reserved_bytes"] and host["pinned_allocated_bytes"] is None:
            yield Said(
                "Pinned memory in use: not known, torch before 2.13 counts it wrongly"
            )


def _apart(after_us, instant):
    side = "after" if after_us >= 0 else "before"
    return f"{duration(abs(after_us))} {side} {_then(instant, 'the peak', 'it')}"


# ---- As plain text ----


def joined(notes: Iterable[str], sections: Iterable[list[Part]]) -> str:
    """NOTES and SECTIONS as text, with aligned columns."""
    texts = map(_section, sections)
    return "".join(note + "\n" for note in notes) + "\n".join(texts)


def _section(parts):
    text = "".join(line + "\n" for part in parts for line in _plain(part))
    return terminal.fit(text, parts.COLUMNS) if isinstance(parts, Screen) else text


def _plain(part):
    if isinstance(part, Heading):
        return [part.text] if part.level == 1 else ["", part.text]
    if isinstance(part, Said):
        return ["  " + part.text]
    return part.lines if isinstance(part, Listing) else wording.aligned(part.lines())


def _cut(source) -> str:
    return source if len(source) <= _SOURCE_SHOWN else source[:_SOURCE_SHOWN] + " ..."


def _kind(group) -> str:
    """The category with most of a line's bytes, and whether there are others."""
    kinds = sorted(group["by_category"].items(), key=lambda item: -item[1])
    if not kinds:
        return ""
    more = f" +{len(kinds) - 1}" if len(kinds) > 1 else ""
    return kinds[0][0].replace("_", " ") + more
