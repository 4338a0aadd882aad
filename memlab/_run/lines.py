"""`memlab lines`: runs a program unchanged, with line tables of some functions."""

import functools
import os
import sys

from memlab import _core
from memlab._errors import Error
from memlab._files import names as _names
from memlab._lines.finder import Finder, Wanted
from memlab._lines.lines import DEFAULT_COLUMNS, LineProfiler
from memlab._run import made_up, program
from memlab._text import line_text, terminal


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    columns = (() if options.no_default_columns else DEFAULT_COLUMNS) + tuple(
        options.column
    )
    wanted = [Wanted(text, options) for text in dict.fromkeys(options.function_names)]
    source = program.prepare(options)
    gpu = _gpu(options, source)
    profiler = LineProfiler(target_gpu="cpu" if source == "cpu" else f"cuda:{gpu}")
    tables = _Tables(options, profiler, wanted, tuple(dict.fromkeys(columns)))
    profiler.enable()
    if source == "cuda":
        _check_later(profiler, gpu, options.gpu is not None)
    finder = Finder(wanted, options, profiler._register, _say_missed)
    finder.begin()
    terminal.say(
        f"memlab: profiling lines by {program.described(source)}", sys.stderr
    )
    program.when_terminated(tables.write_at_once, "the tables")
    return program.run(options, tables.show, finder.program)


def _say_missed(wanted):
    """Reported now, not hours later at the program's end."""
    terminal.show(f"memlab: {wanted.text}: {wanted.why_not()}", sys.stderr)


def _gpu(options, source):
    """The index of the GPU whose memory counts."""
    if source == "cpu" and options.gpu is not None:
        raise Error(
            f"--gpu {options.gpu} selects a GPU, but the memory of the CPU is measured: "
            "leave --gpu out"
        )
    if options.gpu is not None:
        return options.gpu
    local = os.environ.get("LOCAL_RANK", "")
    return int(local) if local.isdecimal() else 0


def _check_later(profiler, gpu, named):
    """Checks that the GPU of that index exists, once the program uses one."""
    import torch

    def check():
        try:
            count = torch.cuda.device_count()
            if gpu < count:
                return
            if named:
                terminal.say(
                    f"memlab: there is no cuda:{gpu}, the program sees {count}; the tables "
                    "show no memory",
                    sys.stderr,
                )
            else:
                # A launcher that shows each process only its own GPU.
                profiler.target_gpu = "cuda:0"
        except Exception as error:
            terminal.say(f"memlab: lines of cuda:{gpu}: {error}", sys.stderr)

    torch.cuda._lazy_call(check)


class _Tables:
    """The output at the program's end: tables on its stdout, and in a file."""

    def __init__(self, options, profiler, wanted, columns):
        self._profiler = profiler
        self._wanted = wanted
        self._columns = columns
        self._stdout = sys.stdout
        self._rank = program.rank()
        self._path = None if options.out is None else self._checked(options.out)

    def _checked(self, path):
        """The absolute path of the file for the tables of this rank."""
        if self._rank != "0":
            stem, ending = os.path.splitext(path)
            path = f"{stem}_rank{self._rank}{ending}"
        # The program may change its working directory.
        path = os.path.abspath(path)
        if os.path.isdir(path) or not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
            raise Error(f"cannot write to {path}; choose another --out")
        return path

    def _results(self):
        """The tables, and a line for each name without a function."""
        self._profiler.disable()
        codes, missing = [], []
        for wanted in self._wanted:
            ran = [(code, self._profiler._ran_as(code)) for code in wanted.codes]
            ran = [(code, name) for code, name in ran if name is not None]
            codes += [code for code, _ in ran]
            if not ran:
                why = wanted.error or wanted.why_not()
                missing.append(f"memlab: no lines of {wanted.text}: {why}")
            elif wanted.text not in (names := [name for _, name in ran]):
                missing.append(f"memlab: {wanted.text} is the same as {names[0]}")
        return self._profiler.display(codes, self._columns), missing

    def _write_file(self, tables):
        if self._path is None:
            return
        try:
            _core.write_file(self._path, repr(tables).encode("utf-8", "backslashreplace"))
        except (Error, OSError, MemoryError) as error:
            terminal.say(f"memlab: the tables were not written: {error}", sys.stderr)

    def _heading(self):
        return f"\nRank {self._rank}:\n" if _names.launched() else ""

    def show(self):
        """At the program's end; returns whether the tables were written."""
        error = None
        tables, missing = self._results()
        self._write_file(tables)
        program.flush(self._stdout)
        if tables:
            error = terminal.tolerate(lambda: self._write(tables), self._stdout)
            if error is not None:
                terminal.forget(self._stdout)
                missing = [*missing, f"memlab: {terminal.unwritten(error)}"]
        for line in missing:
            terminal.show(line, sys.stderr)
        made_up.tell(functools.partial(terminal.show, stream=sys.stderr))
        return error is None

    def _write(self, tables):
        print(self._heading(), file=self._stdout)
        line_text.write(tables, self._stdout)
        self._stdout.flush()

    def write_at_once(self):
        """When a signal ends the program, possibly in the middle of a print."""
        tables, missing = self._results()
        self._write_file(tables)
        try:
            self._stdout.flush()
        except (AttributeError, OSError, RuntimeError, ValueError):
            pass
        if tables:
            _put(1, f"{self._heading()}\n{tables!r}")
        _put(2, "".join(f"{line}\n" for line in missing))


def _put(file, text):
    """Writes TEXT to a file descriptor, past Python's buffers."""
    rest = text.encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(file, rest) :]
