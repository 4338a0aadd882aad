"""A command of the command line, and how its errors are told."""

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
    """Whether ERROR comes of too little memory; a library that was not loaded for want of
    it is told of in words alone."""
    return (
        isinstance(error, MemoryError)
        # CPython loses an exception where it has no memory for a frame of its traceback,
        # and says so in these words, those of a type's slot that lost one. A function in C
        # that did has others.
        or (isinstance(error, SystemError) and str(error) == _LOST_BY_PYTHON)
        or getattr(error, "errno", None) == errno.ENOMEM
        or (isinstance(error, RuntimeError) and str(error).startswith("can't allocate "))
        or "failed to map segment" in str(error)
        or "annot allocate memory" in str(error)
    )


def guarded(command) -> int:
    """Runs COMMAND(); its exit status, 1 and a sentence for an error."""
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
