"""memlab's exceptions; `except memlab.Error` catches every failure of memlab.

This file imports nothing, so that memlab._core and its users can share it.  It also has
a common check of arguments, and the report of failures that must not raise.
"""

import logging
import warnings

__all__ = ["Error", "SnapshotError"]


class Error(RuntimeError):
    """memlab cannot do what was asked; the text says why, and what to do."""


class SnapshotError(Error, ValueError):
    """The file is not a memory snapshot that memlab can read safely."""


# Tracebacks name what users catch: memlab.Error, not memlab._errors.Error.
Error.__module__ = "memlab"
SnapshotError.__module__ = "memlab"


def check_count(value: object, least: int, name: str) -> None:
    """Raises ValueError, with NAME in its text, unless VALUE is an integer of at least
    LEAST.
    """
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")


def tell(text: str) -> None:
    """Warns of a failure beside the training.  The training never gets an exception
    from it, even if warnings are errors.
    """
    try:
        warnings.warn(f"memlab: {text}", RuntimeWarning, stacklevel=3)
    except Exception:
        logging.getLogger("memlab").warning("%s", text)
