"""The largest value of a setting with which a program fits: `memlab fit --vary`.

Owns how a value reaches the program, and the values to try.
"""

import dataclasses
import re

from memlab._errors import Error
from memlab._fit.run import Command

_NAME = r"\s*([A-Za-z_][\w.-]*)\s*=\s*"
# Values of a range in a row that do not meet a condition.
_MOST_PASSED = 100_000
_BYTES = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")


@dataclasses.dataclass
class Vary:
    """A name and its lowest and highest value."""

    name: str
    lowest: int
    highest: int

    def values(self):
        return range(self.lowest, self.highest + 1)


@dataclasses.dataclass
class Choices:
    """A name and the values to try, as text."""

    name: str
    values: tuple[str, ...]


def parse(text) -> Vary:
    """Parses NAME=A..B.  Raises ValueError for anything else."""
    match = re.fullmatch(rf"{_NAME}(\d+)\s*\.\.\s*(\d+)\s*", text)
    if not match or not 1 <= int(match[2]) <= int(match[3]):
        raise ValueError(f"{text!r} is not a range; write for example batch_size=1..64")
    return Vary(match[1], int(match[2]), int(match[3]))


def parse_any(text) -> Vary | Choices:
    """Parses NAME=A..B or NAME=V,V.  Raises ValueError for anything else."""
    match = re.fullmatch(rf"{_NAME}([^\s,]+(?:\s*,\s*[^\s,]+)+)\s*", text)
    if match is None:
        return parse(text)
    return Choices(match[1], tuple(word.strip() for word in match[2].split(",")))


def put(words, name, value):
    """(WORDS, environment variables) with NAME set to VALUE.

    Raises memlab.Error if there is no place for it.
    """
    words, text = list(words), str(value)
    placeholder = "{" + name + "}"
    if any(placeholder in word for word in words):
        return [word.replace(placeholder, text) for word in words], {}
    place = _place(words, name)
    if place is not None:
        at, before = place
        words[at] = before + text
        return words, {}
    if name.isupper():
        return words, {name: text}
    raise Error(
        f"the program's arguments have no place for {name}: write {placeholder} where its "
        f"value goes, or give --{name.replace('_', '-')} once; an environment variable is "
        "named in capitals"
    )


def _place(words, name):
    """(index of the word that ends in NAME's value, its text before the value), the
    last such; None: none.
    """
    found = None
    for at, word in enumerate(words[1:], 1):
        option, equals, _ = word.partition("=")
        if _plain(option.lstrip("-")) != _plain(name):
            continue
        if equals:
            found = at, f"{option}="
        elif word.startswith("-") and at + 1 < len(words):
            found = at + 1, ""
    return found


def _plain(option):
    return option.replace("-", "_")


def search(asked, words, vary):
    """The answer for the largest value that fits, else for the lowest; "vary" has the
    tried values.

    Raises memlab.Error if the program fails with the lowest value.  A failure with a
    higher value is part of the answer: the program may not accept it.
    """
    tried = {}  # value -> what asked.complete() takes
    failed = {}  # value -> why

    def fits(value):
        asked.tell_run(f"trying {vary.name}={value}")
        changed, variables = put(words, vary.name, value)
        command = Command(changed)
        try:
            tried[value] = *asked.try_out(command, variables), command, variables
        except Error as error:
            if value == vary.lowest:
                raise Error(f"with {vary.name}={value} {error}") from None
            failed[value] = str(error)
            asked.tell(f"with {vary.name}={value} the program failed")
            return False
        return tried[value][0]["fits"]

    largest = largest_that(fits, vary.values())
    # Before the answer is completed, which changes the figures of one that does not
    # fit.
    rows = [_row(value, tried[value][0]) for value in tried]
    rows += [_failed_row(value, error) for value, error in failed.items()]
    rows.sort(key=lambda row: row["value"])
    answer = asked.complete(*tried[vary.lowest if largest is None else largest])
    answer["vary"] = {
        "name": vary.name,
        "lowest": vary.lowest,
        "highest": vary.highest,
        "largest": largest,
        "monotonic": _rises(rows),
        "tried": rows,
    }
    return answer


def largest_that(fits, values):
    """The largest of VALUES, a range, for which FITS(value), assuming that it holds for every
    lower one too; None: none.
    """
    search = searching(values)
    value = next(search)
    while True:
        try:
            value = search.send(fits(value))
        except StopIteration as end:
            return end.value


def searching(values, meets=None):
    """Generates which of VALUES, a range, to try, is sent whether each fits, and returns the
    largest that does; None: none.  Doubles from the lowest, so that no value far too high is
    tried, then bisects.  Values that do not MEET a condition are passed over.
    """
    value = first_that(meets, values)
    if value is None or not (yield value):
        return None
    good, bad = value, values[-1] + 1
    while True:
        beyond = min(2 * good, values[-1])
        value = first_that(meets, range(beyond, good, -1))
        if value is None:
            value = first_that(meets, range(beyond + 1, values[-1] + 1))
        if value is None:
            return good
        if not (yield value):
            bad = value
            break
        good = value
    while True:
        middle = (good + bad) // 2
        value = first_that(meets, range(middle, good, -1))
        if value is None:
            value = first_that(meets, range(middle + 1, bad))
        if value is None:
            return good
        if (yield value):
            good = value
        else:
            bad = value


def first_that(meets, values):
    """The first of VALUES, a range, that MEETS(value), None: any does; None: none.

    Raises memlab.Error where none of very many in a row does.
    """
    if meets is None:
        return values[0] if values else None
    found = next(filter(meets, values[:_MOST_PASSED]), None)
    if found is None and len(values) > _MOST_PASSED:
        low, high = sorted((values[0], values[_MOST_PASSED - 1]))
        raise Error(
            f"no value from {low} to {high} meets the conditions: give a narrower range"
        )
    return found


def _row(value, answer):
    most = max(answer["devices"], key=lambda item: item["total_bytes"])
    # The figures of a run that ran out of memory do not show its need.
    return {
        "value": value,
        "fits": answer["fits"],
        **{key: most[key] if answer["fits"] else None for key in _BYTES},
        "error": None,
    }


def _failed_row(value, error):
    return {"value": value, "fits": False, **dict.fromkeys(_BYTES), "error": error}


def _rises(rows):
    """Whether each higher value that fits allocated more, as a bisection assumes."""
    peaks = [row["allocated_peak_bytes"] for row in rows if row["fits"]]
    return peaks == sorted(peaks)
