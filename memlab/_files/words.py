"""Finds the batch among the words of a program's command line."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH = re.compile(r"--?(?:\w+[-_])*(?:batch|batch[-_]size|bs)(?:=(\d+))?")

_SECRET = {"key", "token", "secret", "password", "passwd", "auth"}


def without_secrets(words: Sequence[str]) -> list[str]:
    """WORDS with ... for the values of keys, tokens and passwords."""
    said: list[str] = []
    for word in words:
        option, equals, _ = word.partition("=")
        previous = said[-1] if said else ""
        if equals and _is_secret(option):
            word = f"{option}=..."
        elif previous.startswith("-") and _is_secret(previous) and not word.startswith("-"):
            word = "..."
        said.append(word)
    return said


def _is_secret(option):
    return re.split(r"[-_.]", option.lower())[-1] in _SECRET


def batch_argument(words: Sequence[str]) -> tuple[str, int] | None:
    """(the argument, its number) of the first word that names a batch; None: none does.
    """
    for word, following in zip(words, [*words[1:], ""]):
        match = _BATCH.fullmatch(word)
        value = match and (match[1] or following)
        if value and value.isdecimal() and int(value) > 0:
            return word.partition("=")[0], int(value)
    return None
