"""Instants in words, as users name them: `step:12`, `1.5s`, `end`; and their events on
a device.

The C core has the rules (csrc/core/analysis/answers/instant.h).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from memlab._errors import Error
from memlab._text.wording import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._core import Recording

FORMS = (
    "peak, start, end, step:12 or 12 (the peak within that step), a time from the "
    "first event as 1.5s, 350ms or 20us, or event:123"
)
_TIME = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?(s|ms|us)", re.ASCII)
_NUMBERED = re.compile(r"(?:(step|event):)?(\d{1,18})", re.ASCII)
# Digits after the point down to a microsecond.
_PLACES = {"s": 6, "ms": 3, "us": 0}


class Instant(NamedTuple):
    """The requested instant: "peak", "start", "end", "step", "time" or "event", and for
    the last three the number; a time is in microseconds from the recording's first
    event.
    """

    kind: str
    number: int = 0

    def __str__(self) -> str:
        if self.kind == "time":
            return f"{self.number}us"
        return f"{self.kind}:{self.number}" if self.kind in ("step", "event") else self.kind


def parse(text: str) -> Instant:
    """The instant that TEXT names.  Raises ValueError for an invalid name, TypeError for
    what is no name.
    """
    if not isinstance(text, str):
        raise TypeError(f"an instant is a str, not {text!r}: {FORMS}")
    if text in ("peak", "start", "end"):
        return Instant(text)
    if match := _NUMBERED.fullmatch(text):
        return Instant(match[1] or "step", int(match[2]))
    if match := _TIME.fullmatch(text):
        whole, part, unit = match.groups()
        places = _PLACES[unit]
        digits = (part or "").ljust(places, "0")
        return Instant("time", int(whole + digits[:places]))
    raise ValueError(f"{text!r} is not an instant: {FORMS}")


def event(recording: Recording, device: int, instant: Instant) -> int | None:
    """The index of DEVICE's event right before INSTANT, as for Recording.peak(): -1:
    before the first event; None: the peak.

    Raises memlab.Error, with the existing instants, for one that the recording lacks.
    """
    kind, number = instant
    events = recording.counts(device)["events"]
    if kind == "peak":
        return None
    if kind == "start":
        return -1
    if kind == "end":
        return events - 1
    if kind == "event":
        if number < events:
            return number
        has = f"events 0 to {events - 1}" if events else "no events"
        raise Error(f"no event {number}: {_name(recording, device)} has {has}")
    try:
        if kind == "step":
            return recording.find_event(device, step=number)
        return recording.find_event(device, time_us=number)
    except ValueError as error:
        raise Error(f"{_name(recording, device)}: {error}") from None


def _name(recording, device):
    return escape(recording.device_name(device))
