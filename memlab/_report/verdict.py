"""The verdict on a run in lines.

The core has the words (csrc/core/show/text/verdict_text.h), the figures, and the order.
"""

from __future__ import annotations

import os

from memlab._report import model_lines
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from memlab._answers import ExplainedDevice, Verdict
    from memlab._core import Recording

# The findings that memory ran out.
FAILED = ("out_of_memory", "no_room_outside_torch")
# The findings that memory grows by step.
GROWS = ("grows", "workspaces_grow")


def of_device(recording: Recording, device: int, start: str | None = None) -> Verdict:
    """The verdict on DEVICE, an index, with changes if the recording is short: for a longer
    one, `memlab explain` tries them.  start: the folder to which paths in its texts are
    relative; None: the current one."""
    return recording.verdict(device, trials=None, start=start or os.getcwd())


def place(item, start=None) -> str:
    """FILE:LINE FUNCTION of an item of a verdict and the model's own line to which that
    leads, escaped; "" where it has none."""
    if not item["file"]:
        return ""
    inner = item.get("inner")
    to = model_lines.inner_place(inner, start) if inner else item["function"]
    return wording.escape(f"{wording.near(item['file'], start)}:{item['line']} {to}")


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


def held(growing) -> str:
    """The holder of memory that grows; "" if unknown."""
    return f"held by {wording.escape(growing['holder'])}" if growing["holder"] else ""


def sentences(
    verdict: Verdict | ExplainedDevice, kinds: Container[str] | None = None
) -> list[str]:
    """The findings of KINDS, or all, most urgent first, escaped."""
    return [
        wording.escape(finding["text"])
        for finding in verdict["findings"]
        if kinds is None or finding["kind"] in kinds
    ]


def fits(verdict: Verdict) -> list[str]:
    """The batch that fits, or why none can be told, and the smallest set of remedies that fits,
    escaped."""
    fit = verdict["make_fit"]
    said = (fit["batch_text"], fit["chosen_text"]) if fit is not None else ()
    return [wording.escape(text) for text in said if text]


def changes(verdict: Verdict) -> list[tuple[str, str]]:
    """What to do and what that saves, and the code of each change, escaped."""
    return [
        (wording.escape(item["text"]), wording.escape(item["code"]))
        for item in verdict["changes"]
    ]


def lines(recording: Recording, device: int) -> list[str]:
    """The verdict on DEVICE, an index, in lines: findings, what makes the run fit, then
    changes."""
    verdict = of_device(recording, device)
    said = sentences(verdict)
    said += fits(verdict)
    for number, (what, code) in enumerate(changes(verdict), 1):
        said.append(f"{number}. {what}. {code}")
    return said
