"""memlab's exceptions; `except memlab.Error` catches every failure that is ours.

They live apart from all else so that memlab._core and the modules that it is built for
can use them without importing one another.  So do a check of arguments that several
have, and what is said where nothing may be raised.
"""

import logging
import sys
import warnings

__all__ = ["Error", "SnapshotError"]

# Before anybody misses memlab._core, which is not built for such a Python.
if "t" in sys.abiflags:
    raise ImportError(
        f"{sys.executable} is a free-threaded CPython, and memlab needs one with the GIL, "
        "which keeps stacks and objects still while memlab reads them: run the program "
        "there, as in: uv venv --python 3.14"
    )


class Error(RuntimeError):
    """memlab cannot do what was asked; the text says why and what helps."""


class SnapshotError(Error, ValueError):
    """A file is not a memory snapshot that memlab can read, or not a safe one."""


# Tracebacks name what users catch: memlab.Error, not memlab._errors.Error.
Error.__module__ = "memlab"
SnapshotError.__module__ = "memlab"


def check_count(value: object, least: int, name: str) -> None:
    """Raises ValueError, which calls it NAME, where VALUE is no whole number of at least
    LEAST."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")


def tell(text: str) -> None:
    """Warns of what went wrong beside the training, which never sees an exception of it,
    also where warnings are errors."""
    try:
        warnings.warn(f"memlab: {text}", RuntimeWarning, stacklevel=3)
    except Exception:
        logging.getLogger("memlab").warning("%s", text)
