"""MEMLAB=1: records a process without a changed command line, as those that `accelerate
launch`, `deepspeed` or `srun` start.

memlab.pth calls begin() in every Python process that has the variable.  Recording begins
when the process initialises CUDA, so a launcher, a data loader's worker or a compiler leaves
nothing.  The variable's value may be options of `memlab run`.
"""

import argparse
import itertools
import os
import shlex
import sys
import threading

from memlab._errors import Error

NAME = "MEMLAB"

_begun = False
_process = None  # the Process that this one, or the one that forked it, records


def begin():
    """From now on this process, and one forked from it, is recorded once it has
    initialised CUDA.
    """
    global _begun
    # In a virtual environment Python reads .pth files twice.
    if _begun:
        return
    _begun = True
    from memlab._native.importing import when_imported
    from memlab._run import values

    # A recording keeps values, and tells of them.
    os.environ.pop(values.NAME, None)

    when_imported("torch.cuda", lambda cuda: cuda._lazy_call(_cuda_ready))


def _cuda_ready():
    """Runs inside torch's own initialisation, which no failure here may reach."""
    global _process
    # Another command of memlab's, which records by itself, has taken it out.
    if NAME not in os.environ:
        return
    try:
        _process = Process(_options(os.environ[NAME]))
    except Exception as error:
        from memlab._text import terminal

        terminal.say(
            f"memlab: process {os.getpid()} is not recorded: {error}", sys.stderr
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Error(f"{NAME} must be 1, or options of memlab run: {message}")


def _options(value):
    """Those of `memlab run`, by the variable's VALUE."""
    from memlab._cli import run

    parser = _Parser(add_help=False, allow_abbrev=False)
    run.add_recording(parser)
    words = [] if value.strip() == "1" else shlex.split(value)
    return parser.parse_args(words)


class Process:
    """The recording of this process, from now to its end.  Raises memlab.Error."""

    def __init__(self, options):
        from memlab._native import devices
        from memlab._record import oom
        from memlab._run import children, growing, made_up, program, results
        from memlab._run.telling import Telling

        self._outputs = outputs = _results(options)
        recording = {"source": "cuda", **results.arguments(options)}
        self._snapshot, outputs.events = results.start(
            recording, outputs.path(".mlab"), results.limits(options)
        )
        growing.Watch(self._snapshot).start()
        if devices.under_phantom():
            made_up.watch()
        self._watch = oom.Watch(self._snapshot, outputs.oom_paths, outputs.start)
        self._watch.begin()
        self._telling = Telling(options.quiet)
        self._written = None
        children.at_end(self._end)
        children.on_group(self._snapshot._rank)
        if threading.current_thread() is threading.main_thread():
            program.when_terminated(self._write, "the recording")

    def _write(self):
        """Writes the results, once; returns as results.write_results()."""
        from memlab._run import results

        if self._written is None:
            # For a signal that comes meanwhile.
            self._written = None, []
            self._written = results.write_results(
                self._snapshot, self._outputs, self._watch
            )
        return self._written

    def _end(self):
        from memlab._run import made_up
        from memlab._text import terminal

        try:
            made_up.tell_at_exit(self._telling.say)
            written = self._write()
            if self._is_first():
                self._telling.result(written, self._outputs)
            else:
                self._telling.say(self._line(written))
        except Exception as error:
            terminal.say(f"memlab: no summary: {error}", sys.stderr)

    def _is_first(self):
        """Whether this process tells its first screen: of the others, those that a
        launcher numbered are told by their rank 0, and those by multiprocessing not.
        """
        import multiprocessing

        from memlab._files import names

        alone = multiprocessing.parent_process() is None
        return alone and (names.launched() or self._outputs.rank == "0")

    def _line(self, written):
        from memlab._text import wording

        folder = wording.escape(self._outputs.shown(self._outputs.folder))
        names = ", ".join(os.path.basename(path) for _, path in written[1])
        return f"memlab: process {os.getpid()}: files in {folder}: {names or 'none'}"


def _results(options):
    """The results.Held of this process, by its rank; without one, and where that is taken,
    by the first number that is free.
    """
    from memlab._files import names
    from memlab._run import children, results

    program = os.path.basename(sys.argv[0]) or "python"
    first = children.known_rank()
    stride = names.ranks()["world_size"] if first is not None else 1
    for number in itertools.count(first or 0, stride):
        try:
            return results.Held(options.out, program, str(number))
        except results.Taken:
            continue
