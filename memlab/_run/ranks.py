"""The ranks that a launcher started, each under `memlab run`: which of them have ended, and
which one tells what concerns all of a machine.

Each rank locks a file of its own in the results' folder while it lives.
"""

import contextlib
import fcntl
import os
import time

from memlab._files import names as _names

# How long the rank that tells of all waits for the others.
SECONDS = 10.0
_EVERY = 0.05


def others() -> range:
    """The ranks of this run if a launcher started several; else empty."""
    ranks = _names.ranks()["world_size"]
    return range(ranks) if _names.launched() and ranks > 1 else range(0)


def wait(outputs, ranks) -> list[int]:
    """Those of RANKS whose results are not there yet, after waiting for them."""
    end = time.monotonic() + SECONDS
    while True:
        missing = [r for r in ranks if str(r) != outputs.rank and not _is_done(outputs, r)]
        if not missing or time.monotonic() > end:
            return missing
        time.sleep(_EVERY)


def begin(outputs) -> None:
    """None of this machine has told anything of this run; its first rank says so."""
    if _names.ranks()["local_rank"] == 0:
        with contextlib.suppress(OSError):
            os.unlink(_told(outputs))


def is_first_to_tell(outputs) -> bool:
    """Whether none of this machine's ranks has asked before."""
    if not others():
        return True
    try:
        os.close(os.open(_told(outputs), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass  # better twice than not at all
    return True


def _told(outputs):
    return os.path.join(outputs.folder, f".told_on_{os.uname().nodename}")


def _is_done(outputs, rank):
    """Whether RANK has written its results and ended."""
    path = os.path.join(outputs.folder, f".rank{rank}.lock")
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
