"""`memlab replay`: what a recorded run would need under other allocator settings.

Owns the devices in question and the words; the core has the figures.
"""

from __future__ import annotations

from memlab._errors import Error
from memlab._files import merged
from memlab._report import peaks
from memlab._report.answer import Answer
from memlab._report.parts import Heading, Said, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import Replay, ReplayDevice
    from memlab._files.merged import AnyRecording
    from memlab._report.parts import Part

__all__ = ["replay", "sections"]


def memory_bytes(memory: int | str | None) -> int | None:
    """MEMORY, bytes or a size such as "24GiB", in bytes.  Raises ValueError."""
    from memlab import phantom

    if isinstance(memory, str):
        return phantom.parse_memory(memory)
    if memory is not None and 0 < memory < 1024:
        raise ValueError(f"{memory} bytes of memory: did you mean '{memory}GiB'?")
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
            raise Error(peaks.nothing(recording))
        answers = []
        for index in found:
            answer = ask(index)
            answer["name"] = recording.device_name(index)
            answers.append(answer)
        return answers
    except Error as error:
        raise Error(f"{name}: {error}") from None


def replay(
    recording: AnyRecording,
    conf: str | None = None,
    memory: int | str | None = None,
    *,
    memory_fraction: float | None = None,
    device: int | None = None,
    rank: int | None = None,
) -> Replay:
    """What a recorded run would need on each device under other allocator settings.

    recording: what memlab.open() takes or gives, or a MemorySnapshot. conf: settings as PYTORCH_CUDA_ALLOC_CONF has them,
    "" for torch's defaults, None for those of the recorded run. memory: how much there is
    for torch's allocator, in bytes or as "24GiB"; None for as much as there was.
    memory_fraction: as in torch.cuda.set_per_process_memory_fraction(), of memory, else of
    the recorded GPU's; garbage_collection_threshold counts from it. device: the
    number of one device in its process; rank: that of a process in a merged file; None for
    all. Without conf, memory and memory_fraction the run is replayed as it was, and what the model of the
    allocator does is compared with it.

    Returns a dict, {"devices": [...]}, sizes in bytes; docs/LABORATORY.md describes each
    key. Its str() is the text of `memlab replay`. Raises ValueError for settings that torch would not take and for a fraction of an
    unknown memory, memlab.Error for a device
    that is not in the recording or whose allocator keeps no cache, SnapshotError for what is
    no recording, OSError.
    """
    source, name = merged.recorded(recording)
    limit = memory_bytes(memory)
    answer: Any = {
        "conf": conf,
        "memory_bytes": limit,
        "memory_fraction": memory_fraction,
        "devices": of_devices(
            source, name, device, rank,
            lambda index: source.replay(
                index, conf=conf, memory=limit, memory_fraction=memory_fraction
            ),
        ),
    }
    return Answer(answer, sections)  # type: ignore[return-value]


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
    """ANSWER for people."""
    questions = (answer["conf"], answer["memory_bytes"], answer["memory_fraction"])
    asked = any(question is not None for question in questions)
    return [_device(device, asked) for device in answer["devices"]]
