"""%mlrun and %%mlrun: line tables of a statement or cell in IPython and Jupyter."""

import sys

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope

from memlab._lines import DEFAULT_COLUMNS, LineProfiler, codes_named


@magics_class
class MemlabMagics(Magics):
    """The magics that `%load_ext memlab` adds."""

    @line_cell_magic
    @needs_local_scope
    def mlrun(self, line="", cell=None, local_ns=None):
        """Runs a statement or cell and shows the GPU memory of each line of functions.

            %mlrun [-f FUNC]... [options] statement
            %%mlrun [-f FUNC]... [options]
            code, which may define FUNC

        Names that the code binds stay bound.

          -f, --function FUNC       profile this function, method or class.method; may be
                                    repeated
          -c, --column COLUMN       show this field of torch.cuda.memory_stats() too, or
                                    "delta" or "calls"; may be repeated
          -D, --no_default_columns  leave out active_bytes.all.peak and
                                    reserved_bytes.all.peak
          -g, --gpu GPU_ID          the device whose memory counts (default: 0)
          -r, --return-profiler     return the LineProfiler instead of its tables
          -q, --quiet               show nothing
          -T, --dump-profile OUTPUT write the tables to this file as well
        """
        options, statement = self.parse_options(
            line,
            "f:c:Drg:qT:",
            "function=",
            "column=",
            "no_default_columns",
            "return-profiler",
            "gpu=",
            "quiet",
            "dump-profile=",
            posix=False,
            strict=False,
            list_all=True,
            preserve_non_opts=True,
        )
        return _Run(self.shell, options, statement, cell, local_ns).run()


class _Run:
    """One use of the magic."""

    def __init__(self, shell, options, statement, cell, local_ns):
        self._shell = shell
        self._local_ns = local_ns
        self._options = options
        self._columns = tuple(self._values("c", "column"))
        if not self._flag("D", "no_default_columns"):
            self._columns = DEFAULT_COLUMNS + self._columns
        text = statement if cell is None else cell
        if cell is not None and statement.strip():
            text = statement + "\n" + cell
        self._code = self._compile(text)

    def _values(self, *names):
        return [_unquoted(value) for name in names for value in self._options.get(name, [])]

    def _flag(self, *names):
        return any(name in self._options for name in names)

    def _compile(self, text):
        """TEXT as code whose lines can be shown afterwards."""
        compiler = self._shell.compile
        source = self._shell.transform_cell(text)
        name = compiler.cache(source, self._shell.execution_count, raw_code=text)
        return compile(source, name, "exec", flags=compiler.flags, dont_inherit=True)

    def _functions(self):
        """What -f names: of the code that is about to run, and what there is already."""
        for name in self._values("f", "function"):
            found = codes_named(self._code, name)
            try:
                found.append(eval(name, self._shell.user_ns, self._local_ns))
            except Exception as error:
                if not found:
                    raise UsageError(f"Could not find function {name!r}: {error}") from None
            yield from found

    def run(self):
        target = (self._values("g", "gpu") or ["0"])[-1]
        try:
            profiler = LineProfiler(
                *self._functions(), target_gpu=int(target) if target.isdigit() else target
            )
            profiler.display(columns=self._columns)
        except ValueError as error:
            raise UsageError(str(error)) from None
        try:
            with profiler:
                self._execute()
        except BaseException:
            # What led to it is what the user wants to see.
            if not self._flag("q", "quiet"):
                print(profiler.display(columns=self._columns), file=sys.stderr)
            raise
        finally:
            self._dump(profiler)
        if self._flag("r", "return-profiler"):
            return profiler
        if self._flag("q", "quiet"):
            return None
        return profiler.display(columns=self._columns)

    def _execute(self):
        namespace = self._shell.user_ns
        if self._local_ns is None or self._local_ns is namespace:
            exec(self._code, namespace)
        else:
            exec(self._code, namespace, self._local_ns)

    def _dump(self, profiler):
        for path in self._values("T", "dump-profile")[-1:]:
            with open(path, "w", encoding="utf-8") as stream:
                profiler.print_stats(columns=self._columns, stream=stream)


def _unquoted(text):
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
