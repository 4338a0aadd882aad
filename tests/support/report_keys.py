"""Which keys of an answer docs/REPORT.md does not name."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "REPORT.md"
# Their keys are reasons in words.
_WORDS = {"unknown_because"}


def undocumented(answer):
    """The keys of ANSWER, and of all that is in it, that the document does not name."""
    named = set(re.findall(r"`([^`]+)`", DOCUMENT.read_text()))
    return {key for key in _keys(answer) if key not in named}


def _keys(value):
    if isinstance(value, dict):
        for key, part in value.items():
            yield key
            if key not in _WORDS:
                yield from _keys(part)
    elif isinstance(value, list):
        for part in value:
            yield from _keys(part)
