"""Runs a command of the command line, and reports its errors."""

import errno
import os
import sys

from memlab._errors import Error
from memlab._files import load
from memlab._text import terminal

_NO_MEMORY = (
    "this process got no more memory; raise its limit (ulimit -v, the container's), or go "
    "to a machine with more"
)

_LOST_BY_PYTHON = "error return without exception set"


def _is_of_memory(error):
    """Whether ERROR comes from too little memory.  If a library could not be loaded for
    that reason, only the text says so.
    """
    return (
        isinstance(error, MemoryError)
        # Without memory for a traceback's frame, CPython loses the exception and raises
        # this text, the one for a type's slot that lost it.  A function in C has
        # another text.
        or (isinstance(error, SystemError) and str(error) == _LOST_BY_PYTHON)
        or getattr(error, "errno", None) == errno.ENOMEM
        or (isinstance(error, RuntimeError) and str(error).startswith("can't allocate "))
        or "failed to map segment" in str(error)
        or "annot allocate memory" in str(error)
    )


def guarded(command) -> int:
    """Runs COMMAND(); returns its exit status: 1, with a message, for an error."""
    try:
        load.say = lambda text: terminal.say(f"memlab: {text}", sys.stderr)
        return command()
    except KeyboardInterrupt:
        return 130
    except (Error, ImportError, MemoryError, OSError, RuntimeError, SystemError,
            ValueError) as error:  # fmt: skip
        text = str(error)
        if _is_of_memory(error):
            text = _NO_MEMORY
        elif not isinstance(error, (Error, OSError, ValueError)):
            raise
        elif isinstance(error, OSError) and None not in (error.filename, error.strerror):
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            text += "; make room there, or choose another place"
    terminal.say(f"memlab: {text}", sys.stderr)
    return 1
