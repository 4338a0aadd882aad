"""Finds the batch among the words of a program's command line."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH = re.compile(r"--?(?:\w+[-_])*(?:batch|batch[-_]size|bs)(?:=(\d+))?")


def batch_argument(words: Sequence[str]) -> tuple[str, int] | None:
    """(the argument, its number) of the first word that names a batch; None: none does.
    """
    for word, following in zip(words, [*words[1:], ""]):
        match = _BATCH.fullmatch(word)
        value = match and (match[1] or following)
        if value and value.isdecimal() and int(value) > 0:
            return word.partition("=")[0], int(value)
    return None
