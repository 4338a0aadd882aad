"""`memlab run`: a program as it would run alone, with its memory recorded."""

import fcntl
import linecache
import os
import sys

from memlab import _core, _oom, _page, _program, _report, _terminal
from memlab._errors import Error
from memlab._memory_snapshot import MemorySnapshot


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    source = _program.prepare(options)
    outputs = _Outputs(options)
    snapshot = _start(options, source, outputs)
    watch = None
    if source == "cuda":
        watch = _oom.Watch(
            snapshot, outputs.oom_paths, linecache.getline, outputs.start
        )
        watch.begin()
    print(f"memlab: recording {_program.described(source)}", file=sys.stderr)
    stdout = sys.stdout

    def write():
        return _write(snapshot, outputs, watch)

    _program.when_terminated(write, "the recording")
    return _program.run(options, lambda: _tell(write(), outputs, stdout))


def _start(options, source, outputs):
    """A recording under way; without its file where that cannot be had."""
    how = {"max_entries": options.max_entries, "source": source, "stacks": options.stacks}
    how["uses"] = options.uses
    path = outputs.path(".mlab")
    try:
        snapshot = MemorySnapshot(
            **how, file=path, max_file_bytes=options.max_file_bytes
        ).start()
        outputs.events = path
        return snapshot
    except (Error, ValueError) as error:
        snapshot = MemorySnapshot(**how).start()
        _terminal.say(f"memlab: recording without {path}: {error}", sys.stderr)
        return snapshot


class _Outputs:
    """The folder of the results, held by one process at a time for each rank."""

    def __init__(self, options):
        folder = options.out
        self.program = os.path.basename(options.program)
        self.start = os.getcwd()
        self.events = None  # path of the file of all events, where there is one
        # The program may go to another folder; the results stay where they were asked.
        self.folder = os.path.abspath(folder)
        self.rank = _program.rank()
        try:
            os.makedirs(self.folder, exist_ok=True)
            path = os.path.join(self.folder, f".rank{self.rank}.lock")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Error(
                f"cannot write results to {folder!r}: {error.strerror}; choose another "
                "--out"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Error(
                f"{folder} is being written by another memlab run; choose another --out"
            ) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise Error(f"{folder}: no permission to write; choose another --out")

    def shown(self, path):
        """PATH for people, who stand in the folder where memlab was started."""
        return _report.shorten(path, self.start)

    def path(self, ending):
        return os.path.join(self.folder, f"rank{self.rank}{ending}")

    def report_path(self, ending=".txt"):
        name = "report" if self.rank == "0" else f"report_rank{self.rank}"
        return os.path.join(self.folder, name + ending)

    def oom_paths(self, last):
        ending = "_oom_last" if last else "_oom"
        return self.path(ending + ".pickle"), self.report_path(ending + ".txt")


def _text(recording, outputs):
    return _report.text(recording, code=linecache.getline, start=outputs.start)


def _say_not_written(error):
    _terminal.say(f"memlab: the recording could not be written: {error}", sys.stderr)


def _write(snapshot, outputs, watch):
    """Writes the results and returns the report; what cannot be written is said, the
    program's status stands, and the result is None."""
    try:
        snapshot.stop()
        recording = snapshot.data()
        if watch is not None:
            watch.end(recording)
        recording.write_pickle(outputs.path(".pickle"), True)
        text = _text(recording, outputs)
        _core.write_file(
            outputs.report_path(), text.encode("utf-8", "backslashreplace")
        )
        page = _page.of(recording, title=outputs.program)
        _core.write_file(outputs.path(".html"), page)
    except (Error, OSError, MemoryError) as error:
        _say_not_written(error)
        return None
    return text


def _tell(text, outputs, stdout):
    """Shows the report on the program's first stdout, whatever became of that."""
    if text is None:
        return
    _program.flush(stdout)
    lines = [
        f"\n{text}",
        f"Snapshot: {outputs.shown(outputs.path('.pickle'))}",
        f"Page:     {outputs.shown(outputs.path('.html'))}",
        f"Report:   {outputs.shown(outputs.report_path())}",
    ]
    if outputs.events is not None:
        lines.append(f"Events:   {outputs.shown(outputs.events)}")
    _terminal.show("\n".join(lines), stdout)
