"""`memlab replay`: what a recorded run would need under other allocator settings.

Owns the devices in question and the words; the core has the figures.
"""

from __future__ import annotations

import os

from memlab import _core
from memlab._errors import Error
from memlab._files import merged
from memlab._report import peaks, report
from memlab._report.parts import Heading, Said, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Replay, ReplayDevice
    from memlab._core import _Path
    from memlab._report.parts import Part

__all__ = ["replay", "sections"]


def recorded(recording: _core.Recording | _Path) -> tuple[_core.Recording, str]:
    """RECORDING, read if it is a path, and its name for errors."""
    if isinstance(recording, _core.Recording):
        return recording, "the recording"
    return merged.read(recording), os.fsdecode(recording)


def memory_bytes(memory: int | str | None) -> int | None:
    """MEMORY, bytes or a size such as "24GiB", in bytes.  Raises ValueError."""
    from memlab import phantom

    if isinstance(memory, str):
        return phantom.parse_memory(memory)
    if memory is not None and memory >= 1 << 62:
        raise ValueError(f"{memory} bytes of memory: it must be less than 2^62")
    return memory


def of_devices(recording, name, device, rank, ask) -> list:
    """ASK of each device of RECORDING with the number DEVICE and of the RANK, None:
    any.  Errors call the recording NAME.
    """
    try:
        found = peaks.choose_devices(recording, device, rank)
        if not found:
            raise Error(report.NOTHING)
        answers = []
        for index in found:
            answer = ask(index)
            answer["name"] = recording.device_name(index)
            answers.append(answer)
        return answers
    except Error as error:
        raise Error(f"{name}: {error}") from None


def replay(
    recording: _core.Recording | _Path,
    conf: str | None = None,
    memory: int | str | None = None,
    *,
    device: int | None = None,
    rank: int | None = None,
) -> Replay:
    """What a recorded run would need on each device under other allocator settings.

    recording: the path of a file as for memlab.load(), or the result of
    memlab.MemorySnapshot.data(). conf: settings as in PYTORCH_CUDA_ALLOC_CONF; "":
    torch's defaults; None: the recorded ones. memory: the memory of torch's allocator,
    in bytes or as "24GiB"; None: the recorded amount.  device: a device's number in its
    process; rank: a process's rank in a merged file; None: all.  Without conf and
    memory, the run is replayed unchanged, and the allocator's model is compared with
    the recording.

    Returns a dict, {"devices": [...]}, with sizes in bytes; docs/LABORATORY.md
    describes each key. Raises ValueError for settings that torch would refuse;
    memlab.Error for a device that is not in the recording, or whose allocator has no
    cache; SnapshotError for a file that is no recording; OSError.
    """
    source, name = recorded(recording)
    limit = memory_bytes(memory)
    return {
        "conf": conf,
        "memory_bytes": limit,
        "devices": of_devices(
            source, name, device, rank,
            lambda index: source.replay(index, conf=conf, memory=limit),
        ),
    }


# ---- Words ----


def _change(before, after):
    if before == after:
        return "the same"
    more = f"{wording.size(abs(after - before))} {'more' if after > before else 'less'}"
    return f"{more} ({100 * (after - before) / before:+.1f} %)" if before else more


def _figures(answer: ReplayDevice):
    was = answer["recorded"]
    rows = []
    for name in ("reserved", "allocated"):
        before, after = was[f"{name}_peak_bytes"], answer[f"{name}_peak_bytes"]  # type: ignore[literal-required]
        rows.append(
            (name, wording.size(before), wording.size(after), _change(before, after))
        )
    return Table(("peak of", "recorded", "replayed", "change"), rows, headed=True)


def _verified(answer: ReplayDevice):
    wrong = [
        f"{answer[key]} of {what}"  # type: ignore[literal-required]
        for key, what in (
            ("mismatched_addresses", "addresses"),
            ("mismatched_segments", "segment events"),
            ("mismatched_blocks", "final blocks"),
        )
        if answer[key]  # type: ignore[literal-required]
    ]
    events = wording.plural(answer["events"], "event")
    if wrong:
        return f"The model replays the {events} of the recording, except {', '.join(wrong)}."
    compared = ", segment and final block" if answer["compared"] else " and segment"
    return f"The model replays the {events} of the recording with every address{compared} right."


def _cache(answer: ReplayDevice):
    at = answer["at_reserved_peak"]
    unused, split = at["unused_bytes"], at["inactive_split_bytes"]
    words = f"Not in use at the peak of reserved memory: {wording.size(unused)}"
    if split:
        words += f"; {wording.size(split)} of it in segments with used blocks (fragmentation)"
    return words + "."


def _oom(oom, exact):
    place = f"{wording.shorten(oom['file'])}:{oom['line']} {oom['function']}"
    where = wording.escape(place if oom["file"] else f"({oom['reason'] or 'no line'})")
    yield Said(
        f"Runs out of memory: {wording.size(oom['requested_bytes'])} requested at ",
        where,
        f", with {wording.size(oom['reserved_bytes'])} reserved.",
    )
    least = f"It needs at least {wording.size(oom['least_memory_bytes'])}"
    if oom["missing_bytes"]:
        up_to = "" if exact else "up to "
        least += f", {up_to}{wording.size(oom['missing_bytes'])} more than there is"
    yield Said(least + ".")


def _device(answer: ReplayDevice, asked) -> list[Part]:
    parts: list[Part] = [Heading("", wording.escape(answer["name"]), "", level=1)]
    parts += [_figures(answer), Said(_cache(answer))]
    low, high = answer["reserved_peak_range_bytes"]
    if low != high:
        parts.append(
            Said(
                f"Reserved: {wording.size(low)} to {wording.size(high)}, depending on driver "
                "placement."
            )
        )
    if answer["oom"] is not None:
        parts += _oom(answer["oom"], answer["exact"])
    elif asked:
        parts.append(Said("Does not run out of memory."))
    if answer["retries"]:
        again = wording.plural(answer["retries"], "time")
        parts.append(Said(f"Memory ran short {again}; torch then freed its cache."))
    parts.append(Said(_verified(answer)))
    if not answer["exact"]:
        parts.append(Said("Not exact: " + "; ".join(answer["inexact_because"]) + "."))
    return parts


def sections(answer: Replay) -> list[list[Part]]:
    """ANSWER as text."""
    asked = answer["conf"] is not None or answer["memory_bytes"] is not None
    return [_device(device, asked) for device in answer["devices"]]
