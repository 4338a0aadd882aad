"""The temporary folder of the runs of `memlab fit`.

Owns that it goes with its process: one whose process was killed is removed by the next on the
machine.
"""

import contextlib
import fcntl
import glob
import os
import shutil
import stat
import tempfile

_PREFIX = "memlab_fit_"
# In the folder: the process that made it holds its lock as long as it lives.
_LOCK = ".lock"


@contextlib.contextmanager
def temporary_folder():
    """The path of a new folder, which is removed at the end."""
    remove_left()
    path = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        before = os.path.join(path, ".new")
        with open(before, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Never there without being held.
            os.rename(before, os.path.join(path, _LOCK))
            yield path
    finally:
        _remove(path)


def remove_left():
    """Removes the folders here whose processes were killed."""
    for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*")):
        # Held by a process that lives, or without a lock.
        with contextlib.suppress(OSError):
            if not _is_own(path):
                continue
            with open(os.path.join(path, _LOCK), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)


def _is_own(path):
    """Whether PATH is a folder of this user's; others may leave links to folders here."""
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove(path):
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
    # What a program that is ending wrote meanwhile is found by the lock, next time.
    if all(entry.is_file() for entry in os.scandir(path)):
        shutil.rmtree(path, ignore_errors=True)
