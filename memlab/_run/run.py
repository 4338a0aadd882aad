"""`memlab run`: runs a program unchanged, and records its memory."""

import fcntl
import functools
import os

from memlab._errors import Error
from memlab._record import oom
from memlab._run import growing, made_up, results
from memlab._run import program as _program
from memlab._run.telling import Telling


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    source = _program.prepare(options)
    outputs = _Outputs(options)
    recording = {
        "source": source,
        "max_entries": options.max_entries,
        "stacks": options.stacks,
        "uses": options.uses,
        "source_lines": not options.no_source,
    }
    snapshot, outputs.events = results.start(
        recording, outputs.path(".mlab"), options.max_file_bytes
    )
    growing.Watch(snapshot).start()
    telling = Telling(options.quiet)
    watch = None

    def write():
        return results.write_results(snapshot, outputs, watch)

    def end():
        return telling.result(write(), outputs)

    terminated = write
    if source == "cuda":
        from memlab._run import commands
        from memlab._run import processes as _processes

        watch = oom.Watch(snapshot, outputs.oom_paths, outputs.start)
        watch.begin()
        note = functools.partial(
            commands.note,
            own=_program.own_words(options),
            program=_program.words(options),
        )
        processes = _processes.Processes(
            snapshot, outputs, (recording, options.max_file_bytes), write, telling, note
        )
        end, terminated = processes.end, processes.terminated
    telling.say(f"memlab: recording {_program.described(source)}")
    _program.when_terminated(terminated, "the recording")

    def told():
        made_up.tell(telling.say)
        return end()

    return _program.run(options, told)


class _Outputs(results.Names):
    """The results' folder, held by one process at a time for each rank."""

    def __init__(self, options):
        folder = options.out
        super().__init__(
            os.path.abspath(folder),
            os.path.basename(options.program),
            os.getcwd(),
            _program.rank(),
        )
        self.events = None  # path of the file of all events, if there is one
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._lock = results.open_own(self.hidden_path(".lock"))
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
