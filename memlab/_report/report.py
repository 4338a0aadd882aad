"""Reports of the peak for people and machines, as text and as a dict.

The C core has the figures; this file arranges and words them.
"""

import os
import time

from memlab._files import load
from memlab._report import first_screen, parts, stack_lines
from memlab._report import verdict as _verdict
from memlab._report.peaks import answer_at, devices, nothing
from memlab._text.code import Code

_GAPS_SHOWN = 5


def report(
    recording, file=None, functions=(), at="peak", only=None, source=None
) -> dict:
    """The answers for all devices, as in `memlab report --json`.

    at: the instant, as for instant.parse().  only: indexes of the devices; None: all
    with events or memory.  source: as for text().
    """
    code = Code(recording, source)
    instant = parts.choose(at, functions=functions).instant
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
                "verdict": _verdict.of_device(recording, i),
                "growth": recording.growth(i),
            }
            for i, answer in answers.items()
        ],
        "oom": [answer for i in found if (answer := recording.oom(i)) is not None],
    }


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
    """The report as text: the first screen, the peak, the live memory at it, the lines
    of the functions that made it, the allocator's overhead and, if OOM requests it, the
    last out of memory.

    device: an index; None: all with events or memory.  lines: rows of the table by
    source line.  start: the folder to which paths are relative; None: the current one.
    functions: names of functions to show line by line; empty: those with the most
    bytes; None: none.  at: another instant, as for instant.parse().  by: the only
    tables to show, of line, module, category, stack and size.  source: a folder with
    the program's files, for lines whose text the recording lacks.
    """

    choice = parts.choose(
        at, by, lines=lines, start=start, functions=functions, source=source
    )
    found = devices(recording) if device is None else [device]
    notes = [
        *file_notes(recording.file),
        *load.unread_notes(recording),
        *([] if found else [nothing(recording)]),
    ]
    sections = list(parts.sections(recording, found, choice, oom))
    if choice.usual and oom and found:
        sections.insert(0, first_screen.parts(recording, found, start=start))
    return parts.joined(notes, sections)


def file_notes(file):
    """Sentences about a recording's incomplete file."""
    if file is None:
        return
    if file["state"] == "recording":
        yield f"Still being recorded by process {file['pid']}: the state so far."
    elif file["state"] == "cut off":
        yield "The recording was not ended: its process was killed or is lost."
    if file["stopped"]:
        reason = f" ({os.strerror(file['errno'])})" if file["errno"] else ""
        yield f"Not everything was stored: {file['stopped']}{reason}."
    if file["gone_events"]:
        until = time.localtime(file["gone_until_us"] / 1e6)
        yield (
            f"The file keeps the last part of the run, as it was asked to. Dropped: "
            f"{file['gone_events']} events and {file['gone_steps']} steps, up to "
            f"{time.strftime('%Y-%m-%d %H:%M:%S', until)}. What lived then is here, with its "
            "stacks and owners."
        )
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
