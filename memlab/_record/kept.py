"""Which part of a long recording its file keeps: the notation of keep_last."""

import re

# The limit of a file that keeps steps, as of `memlab run`.
LIMIT = 16 << 30
_ALL = 2**64 - 1


def parse(text: str) -> tuple[int, int]:
    """(steps, bytes) of "50steps" or "4GiB": the newest steps that the file keeps, and the
    limit of its size.  Raises TypeError, ValueError.
    """
    if not isinstance(text, str):
        raise TypeError(f"keep_last must be a str such as '50steps' or '4GiB', not {text!r}")
    match = re.fullmatch(r"(\d+)\s*steps?", text.strip())
    if match and int(match[1]) > 0:
        return min(int(match[1]), _ALL), LIMIT
    from memlab import phantom

    try:
        if match:
            raise ValueError
        return _ALL, phantom.parse_memory(text)
    except ValueError:
        raise ValueError(
            f"keep_last must be a number of steps or of bytes, such as '50steps' or '4GiB', "
            f"not {text!r}"
        ) from None
