"""`memlab explain FILE --measure`: what fits, measured on the phantom device.

Owns which changes of a given program need no edit: its batch argument and the
allocator's settings.  The command never comes from a file.
"""

from __future__ import annotations

import os

from memlab._files.words import batch_argument
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlab._answers import Explanation, FitAnswer, Measured

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_SETTINGS = "expandable_segments:True"


def measure(
    fit: Callable[..., FitAnswer], words: Sequence[str], memory: int, answer: Explanation
) -> Measured:
    """Measures which of these fit in MEMORY, a GPU's bytes.  fit(words, memory, vary):
    as memlab.fit. Settings are tried unless ANSWER rules them out.
    """
    conf = None
    if any(d["make_fit"] and d["make_fit"]["fragmented"] for d in answer["devices"]):
        conf = _with_settings(lambda: fit(words, memory, None)["fits"])
    found = batch_argument(words)
    largest = None
    if found is not None:
        name = found[0].lstrip("-")
        largest = fit(words, memory, f"{name}=1..{found[1]}")["vary"]["largest"]
    return {
        "memory_bytes": memory,
        "conf": "" if conf is None else _SETTINGS,
        "conf_fits": conf,
        "batch_argument": "" if found is None else found[0],
        "batch_given": 0 if found is None else found[1],
        "batch_largest": largest,
    }


def _with_settings(run):
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = _SETTINGS
    try:
        return run()
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def text(measured: Measured) -> str:
    """The answer as text."""
    lines = [f"Measured on the phantom device with {wording.size(measured['memory_bytes'])}"]
    if measured["conf"]:
        fits = "fits" if measured["conf_fits"] else "does not fit"
        lines.append(f"  {_VARIABLE}={measured['conf']}: {fits}")
    argument = measured["batch_argument"]
    if not argument:
        lines.append("  No argument for a batch: give one, such as --batch 32.")
    elif measured["batch_largest"] is None:
        lines.append(f"  No {argument} from 1 to {measured['batch_given']} fits.")
    elif measured["batch_largest"] == measured["batch_given"]:
        lines.append(f"  {argument} {measured['batch_given']} fits, as given.")
    else:
        lines.append(f"  {argument} {measured['batch_largest']}: the largest that fits")
    return "\n".join(lines)
