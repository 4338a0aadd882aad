"""Training time: the length of "3ba", and a training's progress.

Owns time strings in Composer's form, and the counters that measure them.  An object
with `value` and `unit` is a time too.
"""

from __future__ import annotations

import decimal
import operator
import re
from dataclasses import dataclass
from typing import NamedTuple

# The counter of Progress that measures each unit.
_COUNTERS = {
    "iter": "iteration",
    "ep": "epoch",
    "ba": "batch",
    "sp": "sample",
    "tok": "token",
    "dur": "fraction",
    "sec": "total_wct",
}

# Digits as in Python, with single underscores.  The exponent is short, so that a typing
# error does not become an integer of a million digits.
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_NUMBER = rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?[0-9]{{1,3}})?"
_COUNT = re.compile(rf"({_NUMBER})({'|'.join(_COUNTERS)})", re.IGNORECASE)
_CLOCK = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?", re.IGNORECASE)

_MOST = 2**63 - 1
_EXAMPLES = "write for example '3ba', '1ep', '100sp', '0.1dur', '90sec' or '1h30m'"


class Interval(NamedTuple):
    """A length of training: VALUE of UNIT, one of iter ep ba sp tok dur sec.

    The value is an int, except for "dur", a share of the whole training: a float.
    """

    value: int | float
    unit: str

    def __str__(self) -> str:
        return f"{self.value}{self.unit}"


@dataclass
class Progress:
    """A training's progress: the counts at the end of a batch or epoch.

    Times are wall clock seconds.  fraction is the share of the whole training that is
    done, or None if its length is unknown.
    """

    epoch: int = 0
    batch: int = 0
    batch_in_epoch: int = 0
    sample: int = 0
    sample_in_epoch: int = 0
    token: int = 0
    token_in_epoch: int = 0
    iteration: int = 0
    total_wct: float = 0.0
    epoch_wct: float = 0.0
    batch_wct: float = 0.0
    fraction: float | None = None

    def in_unit(self, unit: str) -> int | float | None:
        """The counter that measures UNIT."""
        return getattr(self, _COUNTERS[unit])


def parse(value: object, name: str = "interval") -> Interval:
    """The length of training in VALUE, called NAME in messages.

    value: an int of batches; a string of a number and a unit, "3ba", "3e2ba",
    "4_000tok", "0.1dur", or of hours, minutes and seconds, "1h20m40s", "90m"; or an
    object with value and unit, such as Composer's Time.  Raises TypeError for another
    type and for a fraction of a unit that is counted whole; ValueError for everything
    else that is not a length above 0.
    """
    if isinstance(value, str):
        return _parse_text(value, name)
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return _checked(operator.index(value), "ba", value, name)
    unit = getattr(value, "unit", None)
    unit = getattr(unit, "value", unit)
    amount = getattr(value, "value", None)
    if isinstance(unit, str) and unit.lower() in _COUNTERS and _is_number(amount):
        return _checked(amount, unit.lower(), value, name)
    raise TypeError(
        f"{name} must be an int of batches, a time string or a Time, not {value!r}; "
        f"{_EXAMPLES}"
    )


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _parse_text(text, name):
    stripped = text.strip()
    count = _COUNT.fullmatch(stripped)
    if count:
        # Exact, even if a float is not.
        return _checked(decimal.Decimal(count[1]), count[2].lower(), text, name)
    clock = _CLOCK.fullmatch(stripped)
    if clock and stripped:
        hours, minutes, seconds = (decimal.Decimal(part or 0) for part in clock.groups())
        return _checked(hours * 3600 + minutes * 60 + seconds, "sec", text, name)
    if re.fullmatch(_NUMBER, stripped, re.IGNORECASE):
        raise ValueError(
            f"Invalid time string: {text} ({name}) has no unit; for batches write "
            f"'{stripped}ba', or an int"
        )
    raise ValueError(f"Invalid time string: {text} ({name}); {_EXAMPLES}")


def _checked(value, unit, given, name):
    if not 0 < value <= _MOST:
        raise ValueError(f"{name} must be above 0 and below 2**63, not {given!s}")
    if unit == "dur":
        if value > 1:
            raise ValueError(
                f"{name} of unit dur is a share of the training, at most 1, not {given!s}"
            )
        return Interval(float(value), unit)
    if value != int(value):
        raise TypeError(
            f"value {value} is not an integer. Units {unit} require integer values "
            f"({name})."
        )
    return Interval(int(value), unit)
