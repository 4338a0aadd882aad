"""`memlab explain FILE --measure`: what fits, measured on the phantom device.

Owns which changes of a program that was given need no edit: its batch argument, and each
setting of the allocator that was proposed.  The command is never one out of a file.
"""

from __future__ import annotations

import contextlib
import os

from memlab._errors import Error
from memlab._files.words import batch_argument
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memlab._answers import Explanation, FitAnswer, Measured, MeasuredRun

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_EXPANDABLE = "expandable_segments:True"


def measure(
    fit: Callable[..., FitAnswer], words: Sequence[str], memory: int, answer: Explanation
) -> Measured:
    """What of these fits in MEMORY, a GPU's bytes: the program as given, with each of the
    settings that ANSWER proposes, and with other batches if it does not fit.

    fit(words, memory, vary): as memlab.fit. Raises memlab.Error where the program as given
    fails for another reason than memory.
    """
    found = batch_argument(words)
    given = None if found is None else found[1]
    as_given = _row(fit(words, memory, None), None, given)
    tried = [as_given]
    settings = [_with_settings(fit, words, memory, conf, given) for conf in _settings(answer)]
    tried += settings
    largest = None
    if found is not None and as_given["fits"]:
        largest = given
    elif found is not None:
        name = found[0].lstrip("-")
        vary = fit(words, memory, f"{name}=1..{given}")["vary"]
        largest = vary["largest"]
        tried += [_tried(row) for row in vary["tried"] if row["value"] != given]
    best = next((row for row in settings if row["fits"]), settings[0] if settings else None)
    return {
        "memory_bytes": memory,
        "conf": "" if best is None else best["conf"] or "",
        "conf_fits": None if best is None else best["fits"],
        "batch_argument": "" if found is None else found[0],
        "batch_given": given or 0,
        "batch_largest": largest,
        "tried": tried,
    }


def _settings(answer):
    """Each that was proposed, as text of the variable; "" is to unset it."""
    found: dict[str, None] = {}
    for device in answer["devices"]:
        for item in device["advice"]:
            if item["kind"] == "settings":
                found[item["conf"]] = None
        fit = device["make_fit"]
        if fit and any(item["kind"] == "settings" for item in fit["remedies"]):
            found[_EXPANDABLE] = None
    return list(found)


def _with_settings(fit, words, memory, conf, batch) -> MeasuredRun:
    with _variable(conf):
        try:
            return _row(fit(words, memory, None), conf, batch)
        except Error as error:
            return {
                "conf": conf,
                "batch": batch,
                "fits": False,
                "reserved_peak_bytes": None,
                "error": str(error),
            }


def _row(answer, conf, batch) -> MeasuredRun:
    peaks = [item["reserved_peak_bytes"] for item in answer["devices"]]
    return {
        "conf": conf,
        "batch": batch,
        "fits": answer["fits"],
        "reserved_peak_bytes": max(peaks, default=None),
        "error": None,
    }


def _tried(row) -> MeasuredRun:
    return {
        "conf": None,
        "batch": row["value"],
        "fits": row["fits"],
        "reserved_peak_bytes": row["reserved_peak_bytes"],
        "error": row["error"],
    }


@contextlib.contextmanager
def _variable(value: str) -> Iterator[None]:
    """The settings of programs that are started; "": none."""
    before = os.environ.pop(_VARIABLE, None)
    if value:
        os.environ[_VARIABLE] = value
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before


# ---- Words ----


def _change(row, argument):
    if row["conf"] is not None:
        conf = wording.escape(row["conf"])
        return f"{_VARIABLE}={conf}" if conf else f"unset {_VARIABLE}"
    return "as given" if row["batch"] is None else f"{argument} {row['batch']}"


def _outcome(row):
    if row["error"] is not None:
        return "fails: " + wording.escape(row["error"].partition("\n")[0])
    said = "fits" if row["fits"] else "does not fit"
    peak = row["reserved_peak_bytes"]
    return said if peak is None else f"{said}, needs {wording.size(peak)} reserved"


def text(measured: Measured) -> str:
    """It in words: what was tried, and the largest batch."""
    argument = wording.escape(measured["batch_argument"])
    given, largest = measured["batch_given"], measured["batch_largest"]
    lines = [f"Measured on the phantom device with {wording.size(measured['memory_bytes'])}"]
    rows = [(_change(row, argument), _outcome(row)) for row in measured["tried"]]
    width = max(len(change) for change, _ in rows)
    lines += [f"  {change:{width}}  {outcome}" for change, outcome in rows]
    if not argument:
        lines.append("No argument for a batch: give one, such as --batch 32.")
    elif largest is None:
        lines.append(f"No {argument} from 1 to {given} fits.")
    elif largest == given:
        lines.append(f"{argument} {given} fits, as given.")
    else:
        lines.append(f"The largest that fits: {argument} {largest}")
    return "\n".join(lines)
