"""memlab's exceptions; `except memlab.Error` catches every failure that is ours.

They live apart from all else so that memlab._core and the modules that it is built for
can use them without importing one another.  So does what is said where nothing may be
raised.
"""

import logging
import warnings

__all__ = ["Error", "SnapshotError"]


class Error(RuntimeError):
    """memlab cannot do what was asked; the text says why and what helps."""


class SnapshotError(Error, ValueError):
    """A file is not a memory snapshot that memlab can read, or not a safe one."""


# Tracebacks name what users catch: memlab.Error, not memlab._errors.Error.
Error.__module__ = "memlab"
SnapshotError.__module__ = "memlab"


def tell(text: str) -> None:
    """Warns of what went wrong beside the training, which never sees an exception of it,
    also where warnings are errors."""
    try:
        warnings.warn(f"memlab: {text}", RuntimeWarning, stacklevel=3)
    except Exception:
        logging.getLogger("memlab").warning("%s", text)
