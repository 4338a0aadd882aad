"""memlab's exceptions; `except memlab.Error` catches every failure that is ours.

They live apart from all else so that memlab._core and the modules that it is built for
can use them without importing one another.  So does what is said where nothing may be
raised.
"""

import sys
import warnings

__all__ = ["Error", "SnapshotError"]


class Error(RuntimeError):
    """memlab cannot do what was asked; the text says why and what helps."""


class SnapshotError(Error, ValueError):
    """A file is not a memory snapshot that memlab can read, or not a safe one."""


# Tracebacks name what users catch: memlab.Error, not memlab._errors.Error.
Error.__module__ = "memlab"
SnapshotError.__module__ = "memlab"


def warn(text: str) -> None:
    """Says TEXT, "memlab: ..." with the remedy, as a RuntimeWarning that never becomes an
    exception: for what goes wrong while the program trains."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:
        # Under -W error, which is about the program's own warnings.
        print(text, file=sys.stderr)
    except Exception:
        # A hook of warnings, or a stream, that the program has broken.
        pass
