"""%mlrun, %%mlrun and %memlab in IPython and Jupyter.

Owns the magics' options, and how code is run.
"""

import ast
import contextlib
import getopt
import inspect
import pkgutil
import re

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)
from IPython.display import display
from IPython.utils.text import DollarFormatter

from memlab._errors import tell
from memlab._lines.lines import DEFAULT_COLUMNS, LineProfiler, codes_named
from memlab._lines.lines import _check_columns as check_columns
from memlab._native import sources
from memlab._notebook.chart import Chart
from memlab._notebook.ipython_free import free
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._recording.commands import report
from memlab._run import growing

# Long options, and the letter under which each is kept.
_OPTIONS = {
    "function=": "f:",
    "column=": "c:",
    "no_default_columns": "D",
    "return-profiler": "r",
    "gpu=": "g:",
    "quiet": "q",
    "dump-profile=": "T:",
}
# What a magic cannot do.
_AWAIT = (
    "    with memlab.LineProfiler(function) as profiler:\n"
    "        await function()\n"
    "    profiler.display()"
)
_RECORD_AWAIT = (
    "    with memlab.MemorySnapshot() as snapshot:\n"
    "        await function()\n"
    "    snapshot"
)
# A cell is short beside a program: all its events are kept.
_MOST_EVENTS = 1_000_000
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")


@magics_class
class MemlabMagics(Magics):
    """The magics that `%load_ext memlab` adds."""

    @line_cell_magic
    @needs_local_scope
    @no_var_expand
    def mlrun(self, line="", cell=None, local_ns=None):
        """Runs a statement or cell and shows the GPU memory of each line of functions.

            %mlrun [options] statement

            %%mlrun [options]
            code, which may define what -f names

        Names that the code binds stay bound.  The result is the tables, which the
        notebook shows.  Above those of a cell is the first screen of its recording, with
        the verdict.  If the code raises, both are shown of what ran.

          -f, --function FUNC       profile this function, method or module.function; may
                                    be repeated
          -c, --column COLUMN       show this field of torch.cuda.memory_stats() too, or
                                    "delta" or "calls"; may be repeated
          -D, --no_default_columns  leave out active_bytes.all.peak and
                                    reserved_bytes.all.peak
          -g, --gpu GPU_ID          the device whose memory counts, "cpu" for torch's host
                                    memory (default: 0)
          -r, --return-profiler     give the LineProfiler instead of its tables, and no
                                    first screen
          -q, --quiet               show nothing
          -T, --dump-profile OUTPUT write the tables to this file as well

        Options stand before the statement; names in braces within them, as in
        -T lines_{n}.txt, stand for their values.
        """
        __tracebackhide__ = True
        return _Run(self.shell, line, cell, local_ns).run()

    @line_cell_magic
    @needs_local_scope
    @no_var_expand
    def memlab(self, line="", cell=None, local_ns=None):
        """Records a statement or cell, or frees the memory that IPython itself keeps.

            %memlab run statement

            %%memlab run
            code

        runs the code, with a small chart of the allocated memory under the cell while it
        does, and gives the recording, a memlab.MemorySnapshot: a notebook shows its first
        screen, and .peak(), .explain(), .view() and the like answer more.  Names that the
        code binds stay bound.  Of a cell the value of the last line is shown, too.  If the
        code raises, the recording is shown all the same.

            %memlab free

        frees the last exception with the values that its frames hold, and the results in
        Out, _, __, ___ and _1, _2 and so on; collects garbage; and gives the memory that
        torch has cached back to the GPUs.  It prints a line with what that freed.  What
        you have named stays, and so does In; %debug has nothing to look at afterwards.
        """
        __tracebackhide__ = True
        word, _, statement = line.strip().partition(" ")
        if word == "run" and (statement.strip() or cell):
            return _record(self.shell, statement, cell, local_ns)
        if line.split() == ["free"] and cell is None:
            print(free(self.shell))
            return None
        raise UsageError(
            "%memlab run statement, and %%memlab run before the code of a cell, record; "
            "%memlab free drops the results and the last error that IPython keeps, and "
            "frees their memory; there is no other use of %memlab"
        )


def _record(shell, statement, cell, local_ns):
    """The recording of STATEMENT, or of CELL."""
    __tracebackhide__ = True
    names = shell.user_ns if local_ns is None else local_ns
    # The magic's own line is the first, so that lines are numbered as in the cell.
    text = statement if cell is None else f"\n{cell}"
    code, last = _compile(
        shell, text, "%memlab run", _RECORD_AWAIT, value=cell is not None
    )
    snapshot = _new_recording()
    chart = None
    try:
        with snapshot:
            # A terminal has no place for it.
            if hasattr(shell, "kernel"):
                chart = Chart(_allocated)
            exec(code, shell.user_ns, names)
            value = None if last is None else eval(last, shell.user_ns, names)
    except BaseException:
        # How it came there is what the user wants to see.
        if chart is not None:
            chart.end()
            chart = None
        _show(shell, snapshot)
        raise
    finally:
        if chart is not None:
            chart.end()
    # As the cell does without the magic.
    if value is not None:
        display(value)
    if not hasattr(shell, "kernel"):
        _show(shell, snapshot)
    return snapshot


def _new_recording(source=None):
    """A recording to begin, at whose end the holders of growing memory are searched for, as
    `memlab run` does.
    """
    snapshot = MemorySnapshot(max_entries=_MOST_EVENTS, source=source)
    growing.Watch(snapshot).start()
    return snapshot


def _show(shell, snapshot):
    """Shows the first screen, above what the cell gives."""
    if hasattr(shell, "kernel"):
        display(snapshot)
    else:
        print(report(snapshot))


def _allocated():
    """The allocated bytes of each device that has any."""
    source = sources.default()
    return {
        f"{source}:{index}": each["allocated_bytes"]
        for index, each in sources.stats_of_all(source).items()
        if each["allocated_bytes"]
    }


class _Run:
    """One use of the magic."""

    def __init__(self, shell, line, cell, local_ns):
        self._shell = shell
        self._local_ns = shell.user_ns if local_ns is None else local_ns
        self._options, statement = _parse(line)
        self._columns = tuple(self._values("c"))
        if "D" not in self._options:
            self._columns = DEFAULT_COLUMNS + self._columns
        try:
            check_columns(self._columns)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._quiet = "q" in self._options
        self._screen = cell is not None and not {"q", "r"} & set(self._options)
        # The magic's own line is the first, so that lines are numbered as in the cell.
        self._code, _ = _compile(
            shell, statement if cell is None else f"{statement}\n{cell}", "%mlrun", _AWAIT
        )

    def _values(self, letter):
        """The values of an option, with the user's names in braces replaced by their
        values.
        """
        names = {**self._shell.user_ns, **self._local_ns}
        for value in self._options.get(letter, []):
            try:
                yield DollarFormatter().vformat(value, [], names)
            except Exception:
                # As IPython treats lines of other magics.
                yield value

    def _named(self, name):
        try:
            return eval(name, self._shell.user_ns, self._local_ns)
        except NameError:
            if "." not in name:
                raise
        # The code may be about to import its module.
        return pkgutil.resolve_name(name)

    def _target(self):
        """The device of -g: an index, or "cpu"."""
        return ([*self._values("g")] or ["0"])[-1]

    def _profiler(self):
        """A function named by -f: in the code that is about to run, or existing."""
        target = self._target()
        try:
            profiler = LineProfiler(
                target_gpu=int(target) if target.isdigit() else target
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        for name in self._values("f"):
            codes = codes_named(self._code, name)
            for code in codes:
                profiler._register(code, name)
            try:
                profiler.add_function(self._named(name))
            except Exception as error:
                if not codes:
                    said = f"Could not find function {name!r}: {error}"
                    raise UsageError(said) from None
        return profiler

    def run(self):
        __tracebackhide__ = True
        profiler = self._profiler()
        output = self._output()
        try:
            with self._recorded(), profiler:
                exec(self._code, self._shell.user_ns, self._local_ns)
        except BaseException:
            # The lines before the error are what the user wants to see.
            if not self._quiet and (tables := profiler.display(columns=self._columns)):
                display(tables)
            raise
        finally:
            if output is not None:
                self._write(profiler, output)
        if "r" in self._options:
            return profiler
        return None if self._quiet else profiler.display(columns=self._columns)

    @contextlib.contextmanager
    def _recorded(self):
        """Records what runs within, and shows the first screen."""
        if not self._screen:
            yield
            return
        on_cpu = self._target() == "cpu"
        snapshot = _new_recording("cpu" if on_cpu else None)
        try:
            with snapshot:
                yield
        finally:
            _show(self._shell, snapshot)

    def _output(self):
        """The file of -T, opened first, so that an invalid path fails before anything
        runs.
        """
        paths = [*self._values("T")]
        if not paths:
            return None
        try:
            return open(paths[-1], "w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"Could not write {paths[-1]!r}: {error}") from None

    def _write(self, profiler, output):
        """Ends the file of -T.  Where that fails, as on a full disk, the results of the run
        stay, and so does its own exception.
        """
        try:
            with output:
                profiler.print_stats(columns=self._columns, stream=output)
        except OSError as error:
            tell(
                f"the tables could not be written to {output.name!r}: {error.strerror}; "
                "run it again with -T of a file with room"
            )


def _compile(shell, text, magic, remedy, value=False):
    """TEXT as code whose lines can be shown afterwards, and the code of its last line, apart
    if that has a VALUE to show; else None.  Raises UsageError with REMEDY where it awaits,
    which MAGIC cannot.
    """
    __tracebackhide__ = True
    compiler, lines = shell.compile, text.split("\n")
    # IPython removes empty lines at the beginning.
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    source = "\n" * first + shell.transform_cell(text)
    number = shell.displayhook.prompt_count
    name = compiler.cache(source, number, raw_code=text)
    tree = shell.transform_ast(compiler.ast_parse(source, filename=name))
    shown = value and tree.body and isinstance(tree.body[-1], ast.Expr)
    last = tree.body[-1].value if shown and not text.rstrip().endswith(";") else None
    try:
        if last is None:
            return compiler(tree, name, "exec"), None
        before = ast.Module(tree.body[:-1], tree.type_ignores)
        return compiler(before, name, "exec"), compiler(ast.Expression(last), name, "eval")
    except SyntaxError:
        if not _awaits(tree):
            raise
    raise UsageError(f"{magic} cannot await; in a cell of its own, do:\n{remedy}")


def _parse(line):
    """({letter: values of the option}, the statement after them as written)."""
    words = list(_WORD.finditer(line))
    try:
        options, rest = getopt.getopt(
            [word[0] for word in words], "".join(_OPTIONS.values()), list(_OPTIONS)
        )
    except getopt.GetoptError as error:
        raise UsageError(f"{error.msg}; %mlrun? shows the options") from None
    letters = {f"--{long}".rstrip("="): short[0] for long, short in _OPTIONS.items()}
    values = {}
    for option, value in options:
        letter = letters.get(option, option[1:])
        values.setdefault(letter, []).append(_unquoted(value))
    return values, line[words[-len(rest)].start() :] if rest else ""


def _unquoted(text):
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _awaits(tree):
    """Whether TREE is valid apart from an `await` outside of functions."""
    try:
        code = compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return False
    return bool(code.co_flags & inspect.CO_COROUTINE)
