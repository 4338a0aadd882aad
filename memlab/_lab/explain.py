"""`memlab explain`: why the peak is what it is, and what to change.

Owns the devices in question and the order of the text.  The core has the figures, and
_explain_words the text of each kind of advice.
"""

from __future__ import annotations

import os

from memlab._files import merged
from memlab._lab import replay
from memlab._report import make_fit, model_lines, verdict
from memlab._report.advice_words import WORDS, plural
from memlab._report.answer import Answer
from memlab._report.parts import Heading, Said, Screen, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import Advice, ExplainedDevice, Explanation
    from memlab._files.merged import AnyRecording
    from memlab._report.parts import Part

__all__ = ["explain", "sections", "told"]

_PARTS_SHOWN = 12
_PARTS_SAID = 3
# From this share on it is said what to do about memory whose kind is not known.
_MUCH_UNKNOWN = 0.25
# The reason, if memlab did not make the recording.
_NOT_RECORDED = (
    "the recording does not say what a backward pass made",
    "kept over a backward pass, and parameters are not known",
)
_UNKNOWN = (
    "Much of the peak is unknown, so advice is limited. Record the program from its start, "
    "with a step or two: memlab run --uses."
)
_PHASES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
}
# What an account of the peak does not tell by itself.
_FINDINGS = (
    "no_room_outside_torch",
    "grows",
    "workspaces_grow",
    "may_grow",
    "peak_in_evaluation",
)
# Less than this share of a peak is not told.
_WORTH_TELLING = 0.01
_SETTINGS = ("settings", "fragmentation")
_size = wording.size


def explain(
    recording: AnyRecording,
    memory: int | str | None = None,
    *,
    device: int | None = None,
    rank: int | None = None,
) -> Explanation:
    """Explains the peak of a recorded run, and what to change so that it falls.

    recording: what memlab.open() takes or gives, or a MemorySnapshot.  memory: the memory of torch's allocator, in bytes or
    as "24GiB", for the batch that fits; None: the recorded one.  device: a device's
    number in its process; rank: a process's rank in a merged file; None: all.

    Each advice has the bytes by which the allocated and reserved peaks fall in a replay
    of the changed run.  Changes that lower neither are left out.

    Returns a dict, {"devices": [...]}, with sizes in bytes; docs/LABORATORY.md
    describes each key. Its str() is the text of `memlab explain`. Raises ValueError for an invalid memory; memlab.Error for a
    device that is not in the recording, or whose allocator has no cache; SnapshotError
    for a file that is no recording; OSError.
    """
    source, name = merged.recorded(recording)
    limit = replay.memory_bytes(memory)

    def ask(index):
        found = source.verdict(index, start=os.getcwd())["findings"]
        return {**source.explain(index, memory=limit), "findings": found}

    answer: Any = {
        "memory_bytes": limit,
        "devices": replay.of_devices(source, name, device, rank, ask),
        "measured": None,
    }
    return Answer(answer, sections, columns=Screen.COLUMNS)  # type: ignore[return-value]


def gpu_bytes(recording: AnyRecording) -> int | None:
    """The least memory of a GPU in RECORDING, by the verdict; None: unknown."""
    source, _ = merged.recorded(recording)
    totals = [
        source.verdict(index)["total_bytes"]
        for index in range(source.device_count)
    ]
    return min(filter(None, totals), default=None)


# ---- Words ----


def _place(item, start=None):
    """The line of ITEM, escaped; "" if it has none."""
    if not item["file"]:
        return ""
    file = wording.shorten(item["file"], start)
    inner = item.get("inner")
    to = model_lines.inner_place(inner, start) if inner else item["function"]
    return wording.escape(f"{file}:{item['line']} {to}")


def _when(peak):
    moment, words = peak["moment"], []
    if moment["step"] is not None:
        words.append(f"in step {moment['step']}")
    if moment["phase"] is not None:
        words.append(f"in phase {wording.escape(moment['phase'])}")
    place = _place(peak)
    said = _PHASES.get(peak["phase"], "")
    if said and place and peak["how"] in ("node", "likely", "near"):
        said, place = f"{said} of {place}", ""
    words += filter(None, [said, place and f"at {place}"])
    return ", ".join(words)


def _part_name(part):
    name = part["category"].replace("_", " ")
    if part["module"]:
        name += f" of {wording.escape(part['module'])}"
    return f"{name}: {part['reason']}" if part["reason"] else name


def _consists(answer: ExplainedDevice):
    whole = answer["peak"]["allocated_bytes"]
    sums: dict[str, int] = {}
    for part in answer["parts"]:
        sums[part["category"]] = sums.get(part["category"], 0) + part["bytes"]
    most = sorted(sums.items(), key=lambda item: -item[1])[:_PARTS_SAID]
    said = [
        f"{wording.share(count, whole).strip()} {name.replace('_', ' ')} ({_size(count)})"
        for name, count in most
        if count
    ]
    return f"Most of it: {', '.join(said)}." if said else ""


def _reserved(answer: ExplainedDevice):
    at = answer["at_reserved_peak"]
    unused = at["reserved_bytes"] - at["active_bytes"]
    words = (
        f"At the peak of reserved memory, {_size(at['reserved_bytes'])}, {_size(unused)} are "
        "not in use"
    )
    split = at["inactive_split_bytes"]
    if split:
        words += f"; {_size(split)} of these are in segments with used blocks (fragmentation)"
    return words + "."


def _why(answer: ExplainedDevice):
    yield from map(Said, verdict.sentences(answer, kinds=_FINDINGS))
    peak = answer["peak"]
    when = _when(peak)
    if when:
        yield Said("The peak is ", when, ".")
    was = answer["recorded"]["reserved_bytes"]
    if answer["failed"]:
        yield Said(
            f"The recorded run ran out of memory with {_size(was)} reserved; the replay has "
            "unlimited memory."
        )
    elif answer["start_cached_bytes"]:
        yield Said(
            f"The recorded run reserved {_size(was)}. It had {_size(answer['start_cached_bytes'])} "
            "cached when the recording began; the replays begin without this cache."
        )
    elif was != peak["reserved_bytes"]:
        yield Said(
            f"The recorded run reserved {_size(was)}; the replays assume the likeliest driver "
            "placement."
        )
    said = _consists(answer)
    if said:
        yield Said(said)
    unknown = sum(
        part["bytes"] for part in answer["parts"] if part["reason"] in _NOT_RECORDED
    )
    if unknown > peak["allocated_bytes"] * _MUCH_UNKNOWN:
        yield Said(_UNKNOWN)
    yield Said(_reserved(answer))
    whole = peak["allocated_bytes"]
    shown = answer["parts"][:_PARTS_SHOWN]
    if not shown:
        return
    rows = [
        (
            _size(part["bytes"]),
            wording.share(part["bytes"], whole),
            plural(part["blocks"], "block"),
            _part_name(part) + (f" x{part['modules']}" if part["modules"] > 1 else ""),
        )
        for part in shown
    ]
    yield Heading("What is in the peak")
    columns = ("bytes", "share", "blocks", "what")
    yield Table(columns, rows, [part["bytes"] for part in shown], whole, names=True)
    rest = answer["parts"][_PARTS_SHOWN:]
    if rest:
        left = sum(part["bytes"] for part in rest)
        yield Said(f"... and {plural(len(rest), 'more part')} with {_size(left)}")


def _is_worth_telling(item, peak):
    """Whether a peak falls enough to be worth a change."""
    return any(
        item[f"{name}_saving_bytes"] >= _WORTH_TELLING * peak[f"{name}_bytes"]
        for name in ("allocated", "reserved")
    )


def _not_covered(advice):
    """ADVICE without entries that save nothing after an earlier one of the same kind:
    for example, activations of a module within a module.
    """
    told = []
    for item in advice:
        kinds = {other["kind"] for other in told}
        if item["together"] or item["kind"] not in kinds:
            told.append(item)
    return told


def _sorted_out(answer: ExplainedDevice):
    """All advice of ANSWER, what of it is worth telling, and what of that is told."""
    fit, advice = answer["make_fit"], answer["advice"]
    if fit is not None and fit["failed"] and not fit["fragmented"]:
        # Settings that do not get past the request are no help.
        advice = [item for item in advice if item["kind"] not in _SETTINGS]
    worth = [item for item in advice if _is_worth_telling(item, answer["peak"])]
    return advice, worth, _not_covered(worth)


def told(answer: ExplainedDevice) -> list[Advice]:
    """The advice that sections() has, in its order."""
    return _sorted_out(answer)[2]


def _advice(number, item):
    title, sentence, change = WORDS[item["kind"]](item)
    yield Heading(f"{number}. {title}: saves {item['saves']}")
    yield Said(wording.escape(sentence))
    modules = item["module"] if item["module"].strip("*") else ""
    where = [_place(item), f"in {wording.escape(modules)}" if modules else ""]
    if any(where):
        yield Said("Where: ", " ".join(filter(None, where)))
    yield Said("Write: ", wording.escape(change))
    if item["at_most"]:
        yield Said(
            "Less is saved where the forward pass holds results itself, in local variables or "
            "lists: they stay until its function returns."
        )
    elif not item["exact"]:
        yield Said("The saving is an estimate: the replay assumes when memory would be freed.")


def _together(answer: ExplainedDevice, told):
    both = answer["together"]
    yield Heading(
        f"All together: {_size(both['allocated_bytes'])} allocated, "
        f"{_size(both['reserved_bytes'])} reserved, saves {both['saves']}"
    )
    alone = [str(i) for i, item in enumerate(told, 1) if not item["together"]]
    if alone:
        verb = "saves" if len(alone) == 1 else "save"
        yield Said(f"Not counted: {', '.join(alone)}, which {verb} nothing after the others.")


def _batch(answer: ExplainedDevice):
    batch = answer["batch"]
    if batch is None:
        return
    memory, factor = _size(batch["memory_bytes"]), batch["factor"]
    yield Heading(f"The largest batch that fits in {memory}")
    if factor == 0:
        yield Said(f"None: memory that does not grow with the batch exceeds {memory}.")
        return
    if not batch["scaling_bytes"]:
        yield Said("Nothing at the peak seems to grow with the batch.")
        return
    yield Said(
        f"{factor:.2f} times this one, with {_size(batch['allocated_bytes'])} allocated "
        f"and {_size(batch['reserved_bytes'])} reserved."
    )
    yield Said(
        f"Assumed to grow with the batch: {_size(batch['scaling_bytes'])} of the peak "
        "(activations, inputs and temporaries, except those of a parameter's size)."
    )


def _device(answer: ExplainedDevice) -> list[Part]:
    peak = answer["peak"]
    parts: list[Part] = [
        Heading(
            "Peak on ",
            wording.escape(answer["name"]),
            f": {_size(peak['allocated_bytes'])} allocated, "
            f"{_size(peak['reserved_bytes'])} reserved",
            level=1,
        ),
        *_why(answer),
    ]
    fit = answer["make_fit"]
    advice, worth, advised = _sorted_out(answer)
    for number, item in enumerate(advised, 1):
        parts += _advice(number, item)
    left = len(advice) - len(worth)
    if left:
        parts.append(Said(f"{plural(left, 'more change')} would save less than 1 % each."))
    covered = len(worth) - len(advised)
    if covered:
        parts.append(
            Said(
                f"{plural(covered, 'more change')} of these kinds would save nothing after "
                "them."
            )
        )
    if len(answer["advice"]) > 1:
        parts += _together(answer, advised)
    elif not answer["advice"]:
        peak = "the peak and what the failed request found in use" if answer["failed"] else "the peak"
        parts += [
            Heading("No saving found"),
            Said(
                f"{plural(answer['tried'], 'change')} replayed, none lowers {peak}. Checked: "
                f"{'late frees, ' * answer['uses_known']}copies, gradients, graphs, "
                "checkpointing, fragmentation, settings."
            ),
        ]
    parts += _batch(answer)
    if fit is not None:
        parts += make_fit.parts(fit)
    if not answer["uses_known"]:
        parts.append(
            Said(
                "Not checked: memory that is held after its last use. memlab run --uses "
                "records it."
            )
        )
    if not answer["exact"]:
        said = "; ".join(answer["inexact_because"])
        parts.append(Said("Not exact: " + (said or "the replay differs") + "."))
    return parts


def sections(answer: Explanation) -> list[list[Part]]:
    """ANSWER for people."""
    devices = answer["devices"]
    used = [device for device in devices if device["peak"]["reserved_bytes"]]
    return [_device(device) for device in used or devices]
