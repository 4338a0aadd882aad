"""Answers for people and machines: what was live at the peak, as dict and as text.

All figures come from the C core; this file arranges and words them.
"""

import os

from memlab._errors import Error
from memlab._files import load
from memlab._report import instant as _instant
from memlab._report import stack_lines

CATEGORIES = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "temporary",
    "input",
    "other",
    "workspace",
    "communication",
    "before_recording",
    "unknown",
)


# Of a line of the backward pass that is not exactly the one.
HOW_WORDS = {
    "likely": "likely",
    "near": "near this line",
    "backward_call": "called here",
}

# The report of a recording without a device.
NOTHING = "No memory was allocated while recording."

_GAPS_SHOWN = 5
_SOURCE_SHOWN = 60


def plural(count: int, word: str) -> str:
    """COUNT with WORD, in the plural where it needs one."""
    return f"{count} {word}{'s' * (count != 1)}"


def size(count: int) -> str:
    """COUNT bytes for people: 1536 -> '1.50 KiB'."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def share(part: int, whole: int) -> str:
    """PART of WHOLE in per cent."""
    return f"{100 * part / whole:5.1f} %" if whole else "    - "


def duration(count: int) -> str:
    """COUNT microseconds for people: 1500 -> '1.5 ms'."""
    if count < 1000:
        return f"{count} us"
    return f"{count / 1e3:.1f} ms" if count < 1_000_000 else f"{count / 1e6:.1f} s"


def escape(text: str) -> str:
    """TEXT with everything that could steer a terminal made visible."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def devices(recording) -> list[int]:
    """Indexes of the devices of RECORDING that have events or memory."""
    counts = [recording.counts(i) for i in range(recording.device_count)]
    return [i for i, has in enumerate(counts) if has["events"] or has["segments"]]


def peak(recording, device=None, at="peak") -> dict:
    """The answer for one device at an instant, as _instant.parse() takes it: of DEVICE, or
    of the one that then has most."""
    instant = _instant.parse(at)
    if device is not None:
        return answer_at(recording, device, instant)
    answers = [answer_at(recording, i, instant) for i in devices(recording)]
    if not answers:
        return recording.peak(0)
    return max(answers, key=lambda answer: answer["peak"]["allocated_bytes"])


def lines(recording, device=None, functions=()) -> list[dict]:
    """The tables of the lines of FUNCTIONS, or of those that hold most, for one device."""
    answer = peak(recording, device)
    device = answer["device"]
    tables = stack_lines.tables(recording, {device: answer}, functions)
    return [table.answer() for table in tables[device]]


def report(
    recording, file=None, functions=(), at="peak", only=None, source=None
) -> dict:
    """The answers for all devices, as `memlab report --json` prints them.

    at: the instant, as _instant.parse() takes it.  only: indexes of the devices; None for
    all that have events or memory.  source: as for text().
    """
    from memlab._report import parts as _report_parts
    from memlab._text.code import Code

    code = Code(recording, source)

    instant = _report_parts.choose(at, functions=functions).instant
    found = devices(recording) if only is None else only
    answers = {i: answer_at(recording, i, instant) for i in found}
    tables = dict.fromkeys(answers, ())
    if instant.kind == "peak":
        tables = stack_lines.tables(recording, answers, functions, code)
    return {
        "file": file,
        "recording": recording.file,
        "unread": recording.unread,
        "source": recording.source,
        "at": str(instant),
        "ranks": recording.ranks(),
        "devices": [
            {
                **answer,
                "name": recording.device_name(i),
                "lines": [table.answer() for table in tables[i]],
            }
            for i, answer in answers.items()
        ],
        "oom": [answer for i in found if (answer := recording.oom(i)) is not None],
    }


def answer_at(recording, device, instant) -> dict:
    """What was live on DEVICE at INSTANT, of _instant.  Raises memlab.Error for one that
    the recording does not have."""
    return recording.peak(device, _instant.event(recording, device, instant))


def choose_devices(recording, number=None, rank=None) -> list[int]:
    """Indexes of the devices with events or memory that have the NUMBER in their process
    and are of the RANK; None for any.  Raises memlab.Error where there is none, naming
    those that there are."""
    found = devices(recording)
    numbers = {i: i for i in range(recording.device_count)}
    ranks = {}
    for item in recording.ranks():
        for of in item["devices"]:
            numbers[of["device"]] = of["number"]
            ranks[of["device"]] = item["rank"]
    if rank is not None:
        there = sorted({ranks[i] for i in found if ranks.get(i) is not None})
        found = [i for i in found if ranks.get(i) == rank]
        if not found:
            has = f"it has {_listed(there)}" if there else "it does not say whose it is"
            raise Error(f"the recording has no memory of rank {rank}: {has}")
    if number is not None:
        there = sorted({numbers[i] for i in found})
        found = [i for i in found if numbers[i] == number]
        if not found:
            has = _listed(there) or "none"
            raise Error(f"the recording has no memory of device {number}: it has {has}")
    return found


def _listed(numbers):
    """NUMBERS, in order, with runs of them as 0-7."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def shorten(path: str, start: str | None = None) -> str:
    """PATH relative to the folder START, or the current one, where it lies in it."""
    here = os.path.join(start or os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def _place(group, start) -> str:
    backward = group["phase"] == "backward"
    if group["line"] == 0 and not group["file"]:
        # Autograd's threads have no Python frames; the reason says so, in brackets.
        reason = group["reason"].removesuffix(" (backward)")
        return f"(backward pass: {reason})" if backward else f"({reason})"
    first, last = group["line"], group["until_line"]
    lines = first if first == last else f"{first}-{last}"
    place = f"{shorten(group['file'], start)}:{lines} {group['function']}"
    if group["module"]:
        place += f" [{group['module']}]"
    if first != last:
        place += " (backward, of one of these lines)"
    elif group["how"] in HOW_WORDS:
        place += f" (backward, {HOW_WORDS[group['how']]})"
    elif backward:
        place += " (backward)"
    return place


def _cut(source) -> str:
    return source if len(source) <= _SOURCE_SHOWN else source[:_SOURCE_SHOWN] + " ..."


def _kind(group) -> str:
    """The category of most of the bytes of a line, and whether there are others."""
    kinds = sorted(group["by_category"].items(), key=lambda item: -item[1])
    if not kinds:
        return ""
    more = f" +{len(kinds) - 1}" if len(kinds) > 1 else ""
    return kinds[0][0].replace("_", " ") + more


def categories(answer) -> list[tuple[int, str]]:
    """(bytes, category) of ANSWER, largest first; what is unknown by the reasons why."""
    parts = [
        (count, category.replace("_", " "))
        for category, count in answer["by_category"].items()
        if category != "unknown"
    ]
    whys = answer["unknown_because"].items()
    parts += [(count, f"unknown: {why}" if why else "unknown") for why, count in whys]
    unsaid = answer["by_category"]["unknown"] - sum(count for _, count in whys)
    parts.append((unsaid, "unknown"))
    return sorted((part for part in parts if part[0]), key=lambda part: -part[0])


def category_rows(answer, whole):
    """The categories of ANSWER with their shares of WHOLE bytes."""
    return [(size(count), share(count, whole), name) for count, name in categories(answer)]


def _rows(rows, indent="  "):
    """ROWS with aligned columns, as lines; the last cell of one may be several lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    hanging = indent + " " * sum(width + 2 for width in widths)
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        first, *more = row[-1] if isinstance(row[-1], list) else [row[-1]]
        yield (indent + "  ".join([*cells, first])).rstrip()
        yield from (hanging + line for line in more)


def text(
    recording,
    device=None,
    lines=15,
    start=None,
    oom=True,
    functions=(),
    at="peak",
    by=(),
    source=None,
) -> str:
    """The report for people: the peak, what was live at it, the lines of the functions
    that made it, the allocator's overhead, and, where OOM asks for it, the last out of
    memory.

    device: an index; None for all that have events or memory.  lines: rows of the table
    by source line.  start: the folder to which paths are shown relative; None for the
    current one.  functions: names of those to show line by line; without any, those that
    hold most; None for no such tables.  at: another instant, as _instant.parse() takes
    it.  by: tables to show, of line, module, category, stack and size, and nothing else.
    source: a folder with the program's files, for what the recording has no text of.
    """
    from memlab._report import parts as _report_parts

    choice = _report_parts.choose(
        at, by, lines=lines, start=start, functions=functions, source=source
    )
    found = devices(recording) if device is None else [device]
    notes = [
        *file_notes(recording.file),
        *load.unread_notes(recording),
        *([] if found else [NOTHING]),
    ]
    sections = _report_parts.sections(recording, found, choice, oom)
    return _report_parts.joined(notes, sections)


def file_notes(file):
    """Sentences about a recording's file that is not whole."""
    if file is None:
        return
    if file["state"] == "recording":
        yield f"Still being recorded by process {file['pid']}: the state so far."
    elif file["state"] == "cut off":
        yield "The recording was not ended: its process was killed or is lost."
    if file["stopped"]:
        reason = f" ({os.strerror(file['errno'])})" if file["errno"] else ""
        yield f"Not everything was stored: {file['stopped']}{reason}."
    if file["damaged_chunks"]:
        yield f"Damaged parts of the file that were left out: {file['damaged_chunks']}."
    if file["unknown_starts"]:
        yield "What was in memory when the recording began is not known."
    if file["repeated_starts"]:
        yield (
            "The memory at the start is in the file in parts: an early memlab wrote it. "
            "The parts are put together here; that memlab itself misses memory."
        )
    if file["lost_records"]:
        yield (
            f"Owners, steps, names or settings that are lost: {file['lost_records']}; "
            "categories and phases may miss them."
        )
    if file["native_frames"]:
        yield (
            "C++ frames are shown as addresses: their names are in the snapshot that the "
            "process itself saved, not in this file."
        )
    if file["unread_records"]:
        yield (
            f"Records of the file that this memlab cannot read: "
            f"{file['unread_records']}; a newer one may."
        )
    for gap in file["gaps"][:_GAPS_SHOWN]:
        missing = gap["dropped"] + gap["lost"]
        word = "events were" if missing != 1 else "event was"
        kind = "not stored" if gap["dropped"] else "lost"
        yield (
            f"{missing} {word} {kind} after event {gap['position']} of device "
            f"{gap['device']}."
        )
    if len(file["gaps"]) > _GAPS_SHOWN:
        yield f"... and {len(file['gaps']) - _GAPS_SHOWN} more gaps."
