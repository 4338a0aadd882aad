"""The verdict on a run in words: what happened, and why.

The core has the figures, and chooses the findings and their order.  changes.py has the
words of the changes.
"""

from __future__ import annotations

from memlab._report import changes
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from memlab._answers import Verdict
    from memlab._core import Recording

# Trials replay the whole run: for a longer one, `memlab explain` tries changes.
_TRIED_EVENTS = 200_000

_size = wording.size


def of_device(recording: Recording, device: int) -> Verdict:
    """The verdict on DEVICE, an index, with changes if the recording is short."""
    events = recording.counts(device)["events"]
    return recording.verdict(device, trials=events <= _TRIED_EVENTS)


def place(item, start=None) -> str:
    """FILE:LINE FUNCTION of a verdict's item, escaped; "" if it has none."""
    if not item["file"]:
        return ""
    path = wording.shorten(item["file"], start)
    return wording.escape(f"{path}:{item['line']} {item['function']}")


_STAGES = {
    "loading": "while loading",
    "forward": "in a forward pass",
    "backward": "in a backward pass",
    "optimizer": "in an optimizer step",
    "evaluation": "in an evaluation",
    "generation": "in a generation",
}


def stage(item) -> str:
    """The stage of a verdict's item; "" if unknown."""
    return _STAGES.get(item["stage"], "")


def _out_of_memory(finding, start):
    where = place(finding, start)
    module = wording.escape(finding["module"])
    words = (stage(finding), module and f"of {module}", where and f"at {where}")
    return (
        f"Out of memory {' '.join(filter(None, words))}: "
        f"{_size(finding['bytes'])} were asked for, torch held "
        f"{_size(finding['of_bytes'])}."
    )


def _peak_in_evaluation(finding, start):
    return (
        f"The peak is {stage(finding)}, not in the training: {_size(finding['bytes'])} above "
        f"the training's {_size(finding['of_bytes'])}."
    )


def _growing(finding, start):
    where = place(finding, start) or "a line that is not known"
    return f"{_size(finding['bytes'])} a step since step {finding['since_step']}: {where}"


def held(growing) -> str:
    """The holder of memory that grows; "" if unknown."""
    return f"held by {wording.escape(growing['holder'])}" if growing["holder"] else ""


def _grows(finding, start):
    said = ", ".join(filter(None, (_growing(finding, start), held(finding))))
    if finding["graph"] or finding["holder"].startswith("autograd node "):
        remedy = "It keeps an autograd graph: keep .item() or .detach() of it instead."
    else:
        remedy = "Empty what holds it, or keep .item() or .detach().cpu() of it instead."
    return f"Grows by {said}. {remedy}"


# By kind: a sentence.
_FINDINGS = {
    "out_of_memory": _out_of_memory,
    "grows": _grows,
    "may_grow": lambda finding, start: (
        f"May grow by {_growing(finding, start)}; {finding['steps']} steps are too few to tell."
    ),
    "tight": lambda finding, start: (
        f"Tight: {_size(finding['bytes'])} of the GPU's {_size(finding['of_bytes'])} are free "
        "at the peak."
    ),
    "peak_in_evaluation": _peak_in_evaluation,
    "fragmented": lambda finding, start: (
        f"Fragmented: {_size(finding['bytes'])} of the {_size(finding['of_bytes'])} reserved "
        "lie free between blocks in use."
    ),
    "cache_held": lambda finding, start: (
        f"Cached: {_size(finding['bytes'])} of the {_size(finding['of_bytes'])} reserved are "
        "not in use."
    ),
    "outside_torch": lambda finding, start: (
        f"Outside torch: {_size(finding['bytes'])} of the GPU's {_size(finding['of_bytes'])}."
    ),
    "fits": lambda finding, start: (
        f"Fits: {_size(finding['bytes'])} of the GPU's {_size(finding['of_bytes'])} are free "
        "at the peak."
    ),
}


def sentences(
    verdict: Verdict, start: str | None = None, kinds: Container[str] = _FINDINGS
) -> list[str]:
    """The findings of KINDS, most urgent first; paths are relative to the folder START.
    """
    return [
        _FINDINGS[finding["kind"]](finding, start)
        for finding in verdict["findings"]
        if finding["kind"] in kinds
    ]


def lines(recording: Recording, device: int) -> list[str]:
    """The verdict on DEVICE, an index, in lines: findings, then changes."""
    verdict = of_device(recording, device)
    said = sentences(verdict)
    for number, item in enumerate(verdict["changes"], 1):
        what, code = changes.lines(item, place(item))
        said.append(f"{number}. {what}. {code}")
    return said
