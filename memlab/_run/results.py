"""The files of one process under `memlab run`: its recording, its report, their paths.
"""

import errno
import fcntl
import os
import stat
import sys

from memlab import _core
from memlab._errors import Error
from memlab._page import page
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._report import report
from memlab._text import terminal, wording


def arguments(options):
    """MemorySnapshot's arguments of a recording with OPTIONS, those of `memlab run`."""
    return {
        "max_entries": options.max_entries,
        "stacks": options.stacks,
        "uses": options.uses,
        "source_lines": not options.no_source,
    }


def limits(options):
    """MemorySnapshot's arguments of the size of a recording's file, likewise."""
    if options.keep_last is not None:
        return {"keep_last": options.keep_last}
    return {"max_file_bytes": options.max_file_bytes}


def start(recording, path, limits):
    """A new recording with the arguments RECORDING, and the path of its file, with the
    arguments LIMITS; if the file cannot be made, a recording without one, and None.
    """
    try:
        snapshot = MemorySnapshot(**recording, file=path, **limits)
        return snapshot.start(), path
    except (Error, ValueError) as error:
        snapshot = MemorySnapshot(**recording).start()
        terminal.say(f"memlab: recording without {path}: {error}", sys.stderr)
        return snapshot, None


class Names:
    """The paths of one process's results.

    folder: absolute, because the program may change its working directory.  program:
    its name. start: the folder where memlab was started.  rank: digits.
    """

    def __init__(self, folder, program, start, rank):
        self.folder = folder
        self.program = program
        self.start = start
        self.rank = rank

    def shown(self, path):
        """PATH for people, relative to the folder where memlab was started."""
        return wording.shorten(path, self.start)

    def path(self, ending):
        return os.path.join(self.folder, f"rank{self.rank}{ending}")

    def report_path(self, ending=".txt"):
        name = "report" if self.rank == "0" else f"report_rank{self.rank}"
        return os.path.join(self.folder, name + ending)

    def hidden_path(self, ending):
        return os.path.join(self.folder, f".rank{self.rank}{ending}")

    def oom_paths(self, last):
        ending = "_oom_last" if last else "_oom"
        return self.path(ending + ".pickle"), self.report_path(ending + ".txt")

    def of_rank(self, rank):
        """The same for RANK, of the same run."""
        return Names(self.folder, self.program, self.start, rank)

    def by_label(self):
        """The paths of a run's results, by label."""
        return {
            "Events": self.path(".mlab"),
            "Snapshot": self.path(".pickle"),
            "Page": self.path(".html"),
            "Report": self.report_path(),
        }

    def all(self):
        """All possible paths, in an order that is the same for all ranks."""
        own = self.by_label().values()
        return [*own, *self.oom_paths(False), *self.oom_paths(True)]


class Taken(Error):
    """Another process holds the results."""


class Held(Names):
    """The results of one process in FOLDER, which it holds until it ends.

    program: its name.  rank: digits.  Raises Taken, or Error where nothing can be written.
    """

    def __init__(self, folder, program, rank):
        super().__init__(os.path.abspath(folder), program, os.getcwd(), rank)
        self.events = None  # path of the file of all events, if there is one
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._lock = open_own(self.hidden_path(".lock"))
        except OSError as error:
            raise Error(
                f"cannot write results to {folder!r}: {error.strerror}; choose another "
                "--out"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Taken(
                f"{folder} is being written by another memlab run; choose another --out"
            ) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise Error(f"{folder}: no permission to write; choose another --out")


def open_own(path):
    """A descriptor of the file at PATH, a lock or list of memlab's own, made if
    missing.  Raises OSError, also for anything that another user may have put there: a
    link, or no regular file of this user.
    """
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        lock = os.open(path, how, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, f"{path} is a symbolic link: remove it") from None
    status = os.fstat(lock)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(lock)
        raise OSError(errno.EINVAL, f"{path} is not a regular file: remove it")
    return lock


def write_results(snapshot, outputs, watch):
    """Writes each result separately.  Returns the recording (None without one), and
    (label, path) of the written files; failures are reported.
    """
    written = []

    def attempt(what, make):
        try:
            return make()
        except (Error, OSError, MemoryError) as error:
            # Python's MemoryError has no text.
            why = getattr(error, "strerror", None) or str(error) or "no memory is left"
            remedy = "make room for it, or choose another --out, and run again"
            terminal.say(f"memlab: {what} was not written: {why}; {remedy}", sys.stderr)
            return None

    def put(label, path, write):
        def make():
            write(path)
            written.append((label, path))

        attempt(outputs.shown(path), make)

    def take():
        snapshot.stop()
        recording = snapshot.data()
        if watch is not None:
            watch.end(recording)
        return recording

    recording = attempt("the recording", take)
    if recording is None:
        return None, written
    # The smallest file comes first: there may be no room for more.
    text = attempt("the report", lambda: report.text(recording, start=outputs.start))
    if text is not None:
        data = text.encode("utf-8", "backslashreplace")
        path = outputs.report_path()
        put("Report", path, lambda path: _core.write_file(path, data))
    put("Snapshot", outputs.path(".pickle"), lambda path: recording.write_pickle(path, True))
    put(
        "Page",
        outputs.path(".html"),
        lambda path: _core.write_file(path, page.of(recording, title=outputs.program)),
    )
    return recording, written
