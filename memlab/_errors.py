"""memlab's exceptions; `except memlab.Error` catches every failure of memlab.

This file imports nothing, so that memlab._core and its users can share it.  It also has
a common check of arguments, and the report of failures that must not raise.
"""

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
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")


def tell(text: str) -> None:
    """Warns of a failure beside the training.  The training never gets an exception
    from it, even if warnings are errors.
    """
    try:
        warnings.warn(f"memlab: {text}", RuntimeWarning, stacklevel=3)
    except Exception:
        # Which import memlab alone need not wait for.
        import logging

        logging.getLogger("memlab").warning("%s", text)
