"""Lengths of training: every unit, every way to write a number, and what is refused."""

import random
import types
from fractions import Fraction

import pytest

from memlab._files import times
from memlab._files.times import Interval, Progress

COUNTED = ["iter", "ep", "ba", "sp", "tok", "sec"]


@pytest.mark.parametrize(
    "given, value, unit",
    [
        (3, 3, "ba"),
        ("3ba", 3, "ba"),
        ("1ep", 1, "ep"),
        ("2iter", 2, "iter"),
        ("3e10sp", 30_000_000_000, "sp"),
        ("4_000tok", 4000, "tok"),
        ("3e2ba", 300, "ba"),
        ("1.5e1ba", 15, "ba"),
        ("2.0ba", 2, "ba"),
        ("30sec", 30, "sec"),
        ("3BA", 3, "ba"),
        (" 3ba ", 3, "ba"),
        # More than a float can tell apart.
        ("9007199254740993tok", 9007199254740993, "tok"),
        ("0.1dur", 0.1, "dur"),
        ("5e-1DUR", 0.5, "dur"),
        ("1dur", 1.0, "dur"),
        ("1h20m40s", 4840, "sec"),
        ("90m", 5400, "sec"),
        ("30h", 108000, "sec"),
        ("1h30s", 3630, "sec"),
        ("45S", 45, "sec"),
    ],
)
def test_lengths(given, value, unit):
    interval = times.parse(given)
    assert (interval.value, interval.unit) == (value, unit)
    assert type(interval.value) is (float if unit == "dur" else int)


@pytest.mark.parametrize(
    "given, error, words",
    [
        ("3", ValueError, "Invalid time string: 3 .*for batches write '3ba'"),
        ("ba", ValueError, "Invalid time string: ba"),
        ("", ValueError, "Invalid time string"),
        ("h", ValueError, "Invalid time string"),
        ("3 ba", ValueError, "Invalid time string"),
        ("3weeks", ValueError, "Invalid time string"),
        ("1_ba", ValueError, "Invalid time string"),
        ("1__0ba", ValueError, "Invalid time string"),
        ("nanba", ValueError, "Invalid time string"),
        ("infdur", ValueError, "Invalid time string"),
        ("1h1h", ValueError, "Invalid time string"),
        ("1m1h", ValueError, "Invalid time string"),
        ("1.5h", ValueError, "Invalid time string"),
        ("-1h", ValueError, "Invalid time string"),
        ("1e9999ba", ValueError, "Invalid time string"),
        ("1e999ba", ValueError, "below 2"),
        ("9" * 5000 + "ba", ValueError, "below 2"),
        ("0ba", ValueError, "above 0"),
        ("-1ba", ValueError, "above 0"),
        ("0h0m", ValueError, "above 0"),
        (0, ValueError, "above 0"),
        (-3, ValueError, "above 0"),
        ("0dur", ValueError, "above 0"),
        ("1.1dur", ValueError, "at most 1"),
        ("1.5ba", TypeError, "value 1.5 is not an integer. Units ba require"),
        ("1e-1ep", TypeError, "not an integer"),
        (3.0, TypeError, "span must be an int of batches, a time string"),
        (True, TypeError, "span must be"),
        (None, TypeError, "span must be"),
        (b"3ba", TypeError, "span must be"),
        (types.SimpleNamespace(value=3, unit="weeks"), TypeError, "span must be"),
        (types.SimpleNamespace(value=True, unit="ba"), TypeError, "span must be"),
        (types.SimpleNamespace(value=-3, unit="ba"), ValueError, "above 0"),
        (types.SimpleNamespace(value=float("nan"), unit="dur"), ValueError, "above 0"),
    ],
)
def test_what_is_refused_and_why(given, error, words):
    with pytest.raises(error, match=words) as caught:
        times.parse(given, "span")
    assert "span" in str(caught.value)


def test_the_times_of_other_libraries():
    """As Composer's Time(3, TimeUnit.EPOCH), whose unit is an enumeration of words."""
    time = types.SimpleNamespace(value=3, unit=types.SimpleNamespace(value="ep"))
    assert times.parse(time) == Interval(3, "ep")
    assert times.parse(types.SimpleNamespace(value=0.25, unit="dur")).value == 0.25
    assert times.parse(times.parse("7tok")) == Interval(7, "tok")

    class Index:
        def __index__(self):
            return 4

    assert times.parse(Index()) == Interval(4, "ba")


def spelled(rng, digits):
    """DIGITS with underscores between some of them."""
    out = digits[0]
    for digit in digits[1:]:
        out += rng.choice(["", "", "_"]) + digit
    return out


def test_numbers_against_fractions():
    rng = random.Random(20261122)
    seen = dict.fromkeys(["length", "part", "out of range"], 0)
    for _ in range(4000):
        whole = str(rng.randrange(10 ** rng.randrange(1, 12)))
        part = str(rng.randrange(1000)) if rng.random() < 0.4 else ""
        exponent = rng.choice([0, 0, 1, 2, 3, 9, -1, -2])
        value = Fraction(f"{whole}.{part or 0}") * Fraction(10) ** exponent
        text = spelled(rng, whole) + ("." + spelled(rng, part) if part else "")
        if exponent or rng.random() < 0.2:
            text += rng.choice("eE") + rng.choice(["", "+"] if exponent >= 0 else [""])
            text += str(exponent)
        unit = rng.choice(COUNTED)
        text += "".join(rng.choice([c, c.upper()]) for c in unit)
        if not 0 < value < 2**63:
            seen["out of range"] += 1
            with pytest.raises(ValueError):
                times.parse(text)
        elif value.denominator != 1:
            seen["part"] += 1
            with pytest.raises(TypeError):
                times.parse(text)
        else:
            seen["length"] += 1
            assert times.parse(text) == Interval(int(value), unit), text
    assert min(seen.values()) > 50, seen


def test_clocks_against_seconds():
    rng = random.Random(7)
    for _ in range(1000):
        parts = {
            letter: rng.randrange(100)
            for letter in "hms"
            if rng.random() < 0.7
        }
        text = "".join(f"{number}{letter}" for letter, number in parts.items())
        seconds = sum(n * {"h": 3600, "m": 60, "s": 1}[c] for c, n in parts.items())
        if seconds:
            assert times.parse(text) == Interval(seconds, "sec"), text
        else:
            with pytest.raises(ValueError):
                times.parse(text)


def test_each_unit_has_its_counter():
    progress = Progress(
        epoch=1, batch=2, sample=3, token=4, iteration=5, total_wct=6.5, fraction=0.5
    )
    counters = {unit: progress.in_unit(unit) for unit in [*COUNTED, "dur"]}
    assert counters == {
        "iter": 5, "ep": 1, "ba": 2, "sp": 3, "tok": 4, "sec": 6.5, "dur": 0.5,
    }  # fmt: skip
    assert str(times.parse("3e2ba")) == "300ba"
