"""`memlab tune`: the allocator settings with which a recorded run would have reserved
least.

Owns the words; the core searches and has the figures.
"""

from __future__ import annotations

from memlab._files import merged
from memlab._lab import replay
from memlab._report.answer import Answer
from memlab._report.parts import Heading, Listing, Said, Screen, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._answers import Tune, TuneDevice
    from memlab._files.merged import AnyRecording
    from memlab._report.parts import Part

__all__ = ["sections", "tune"]

_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_PLACEMENT = "by driver placement"


def tune(
    recording: AnyRecording,
    memory: int | str | None = None,
    *,
    device: int | None = None,
    rank: int | None = None,
) -> Tune:
    """The allocator settings with which a recorded run would have reserved least.

    recording, memory, device and rank are as for memlab.replay().  Settings are tried
    in replays of the recording, which takes seconds.

    Returns a dict, {"devices": [...]}, with sizes in bytes; docs/LABORATORY.md
    describes each key. Its str() is the text of `memlab tune`. Raises the errors of memlab.replay().
    """
    source, name = merged.recorded(recording)
    limit = replay.memory_bytes(memory)
    answer: Any = {
        "memory_bytes": limit,
        "devices": replay.of_devices(
            source, name, device, rank, lambda index: source.tune(index, memory=limit)
        ),
    }
    return Answer(answer, sections, columns=Screen.COLUMNS)  # type: ignore[return-value]


# ---- Words ----


def _saving(tuned, base):
    """The saving of TUNED over BASE, in words; "" if BASE is not a whole run."""
    saved = base["reserved_peak_bytes"] - tuned["reserved_peak_bytes"]
    if tuned is base:
        return "does not fit" if base["ooms"] else ""
    if base["ooms"] or not base["reserved_peak_bytes"]:
        return ""
    share = 100 * abs(saved) / base["reserved_peak_bytes"]
    return f"{wording.size(abs(saved))} {'less' if saved >= 0 else 'more'} ({share:.1f} %)"


def _row(name, tuned, base):
    low, high = tuned["reserved_peak_range_bytes"]
    order = "" if low == high else f"({wording.size(low)} to {wording.size(high)})"
    return (
        wording.size(tuned["reserved_peak_bytes"]),
        order,
        _saving(tuned, base),
        str(tuned["driver_calls"]),
        str(tuned["retries"]),
        name,
    )


def _bounds(answer: TuneDevice):
    packed = wording.size(answer["perfect_packing_bytes"])
    yield Said(f"Perfect packing: {packed} reserved. No settings can go below it.")
    soon = answer["perfect_frees_bytes"]
    if soon is None:
        yield Said("Perfect frees: not known. Record with --uses (uses=True) to know it.")
    else:
        yield Said(
            f"Perfect frees: {wording.size(soon)} allocated, if each block were freed "
            "after its last use."
        )


def _verdict(answer: TuneDevice):
    base, best = answer["base"], answer["best"]
    room = "" if answer["memory_bytes"] is None else (
        f" {wording.size(answer['memory_bytes'])} of"
    )
    if best is None:
        words = "No settings found that reserve less"
        if not answer["fits"]:
            words += f", and the program does not fit in{room} memory"
        yield Said(words + ".")
        return
    if not answer["fits"]:
        yield Said(
            f"No settings found that make the program fit in{room} memory. With unlimited "
            "memory, as in the table, these reserve least:"
        )
    elif base["ooms"]:
        yield Said("With these settings the program fits:")
    elif base["retries"]:
        now = best["retries"]
        never = f"runs short {wording.plural(now, 'time')}" if now else "never runs short"
        times = wording.plural(base["retries"], "time")
        yield Said(f"With these settings memory {never}, not {times} as recorded:")
    else:
        yield Said(f"These settings reserve {_saving(best, base)}:")
    yield Listing([f"{_VARIABLE}={best['conf']}"])


def _device(answer: TuneDevice) -> list[Part]:
    base, best = answer["base"], answer["best"]
    parts: list[Part] = [Heading("", wording.escape(answer["name"]), "", level=1)]
    parts += _verdict(answer)
    rows = [_row("as recorded", base, base)]
    rows += [
        _row(tuned["conf"] or "torch's defaults", tuned, base)
        for tuned in ([best] if best else []) + answer["others"]
    ]
    columns = ["reserved", _PLACEMENT, "change", "driver calls", "retries", "settings"]
    if not any(row[1] for row in rows):
        # Driver placement decided nothing in any trial.
        columns.remove(_PLACEMENT)
        rows = [(row[0], *row[2:]) for row in rows]
    parts.append(Table(columns, rows, headed=True))
    cached = answer["start_cached_bytes"]
    if cached:
        parts.append(
            Said(
                f"All replays begin without the {wording.size(cached)} that were cached when the "
                "recording began. The recorded run, with this cache, reserved more than the row "
                "as recorded says."
            )
        )
    parts += _bounds(answer)
    tried = f"{answer['trials']} trials"
    if answer["out_of_trials"]:
        tried += ", the limit for a recording of this length"
    parts.append(
        Said(f"{tried}. Speed is not replayed; calls of the driver are slow, so fewer is better.")
    )
    if not answer["exact"]:
        parts.append(Said("Not exact: " + "; ".join(answer["inexact_because"]) + "."))
    return parts


def sections(answer: Tune) -> list[list[Part]]:
    """ANSWER as text."""
    return [_device(device) for device in answer["devices"]]
