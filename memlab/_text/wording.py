"""Sizes, shares, places and rows of a table in words.

Owns their form; the C core has all figures.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# For a line of the backward pass that is not exact.
HOW_WORDS = {
    "likely": "likely",
    "near": "near this line",
    "backward_call": "called here",
}

# The file that ipykernel names a notebook's cell by, which no reader can open.
_CELL = re.compile(r"/ipykernel_\d+/\d+\.py\Z")

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def plural(count: int, word: str) -> str:
    """COUNT with WORD, in the plural if needed."""
    return f"{count} {word}{'s' * (count != 1)}"


def numbers(values: Iterable[int]) -> str:
    """Ascending integers in few characters: 0, 1, 2, 5 -> '0-2, 5'."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def names(given: Iterable[str]) -> tuple[str, ...]:
    """GIVEN, names, of which one alone may be a str."""
    return (given,) if isinstance(given, str) else tuple(given)


def size(count: int) -> str:
    """COUNT bytes for people: 1536 -> '1.50 KiB', 606000000 -> '578 MiB'.

    Three significant digits, in the smallest unit with a value below 1000: 1000 MiB is
    '0.977 GiB'. Bytes below 1 KiB are exact.
    """
    if abs(count) < 1024:
        return f"{count} B"
    power = 1
    while abs(count) / 1024**power >= 999.5 and power < len(_UNITS):
        power += 1
    value = count / 1024**power
    # '#' keeps trailing zeros, and a point after three digits.
    digits = f"{value:#.3g}".rstrip(".") if abs(value) < 999.5 else f"{value:.0f}"
    return f"{digits} {_UNITS[power - 1]}"


def share(part: int, whole: int) -> str:
    """PART of WHOLE in percent."""
    return f"{100 * part / whole:5.1f} %" if whole else "    - "


def duration(count: int) -> str:
    """COUNT microseconds for people: 1500 -> '1.5 ms'."""
    if count < 1000:
        return f"{count} us"
    return f"{count / 1e3:.1f} ms" if count < 1_000_000 else f"{count / 1e6:.1f} s"


def escape(text: str) -> str:
    """TEXT with everything made visible that could control a terminal."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def shorten(path: str, start: str | None = None) -> str:
    """PATH relative to the folder START, or to the current one, if it lies in it; of a
    notebook's cell `<cell>`.
    """
    if _CELL.search(path):
        return "<cell>"
    here = os.path.join(start or os.getcwd(), "")
    return path[len(here) :] if path.startswith(here) else path


def near(path: str, start: str | None = None) -> str:
    """PATH from the folder of the installed package on that it is of, else as shorten()."""
    for folder in ("site-packages/", "dist-packages/"):
        before, found, inside = path.rpartition(folder)
        if found:
            return inside
    return shorten(path, start)


def place(group, start) -> str:
    """Where GROUP's bytes, an item of by_line, were allocated, as far as known."""
    backward = group["phase"] == "backward"
    if group["line"] == 0 and not group["file"]:
        # Autograd's threads have no Python frames; the reason says so, in brackets.
        reason = group["reason"].removesuffix(" (backward)")
        return f"(backward pass: {reason})" if backward else f"({reason})"
    first, last = group["line"], group["until_line"]
    lines = first if first == last else f"{first}-{last}"
    said = f"{near(group['file'], start)}:{lines} {group['function']}"
    # That it is in several modules, without a name, tells nothing.
    if group["module"].strip("*."):
        said += f" [{group['module']}]"
    if first != last:
        said += " (backward, of one of these lines)"
    elif group["how"] in HOW_WORDS:
        said += f" (backward, {HOW_WORDS[group['how']]})"
    elif backward:
        said += " (backward)"
    return said


def aligned(rows, indent="  "):
    """ROWS with aligned columns, as lines; a row's last cell may have several lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    hanging = indent + " " * sum(width + 2 for width in widths)
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        first, *more = row[-1] if isinstance(row[-1], list) else [row[-1]]
        yield (indent + "  ".join([*cells, first])).rstrip()
        yield from (hanging + line for line in more)
