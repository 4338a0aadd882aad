"""memlab.LineProfiler: memory while each line of some functions ran."""

from __future__ import annotations

import difflib
import functools
import inspect
import linecache
import sys
import types
import warnings

from memlab import _core
from memlab._native import sources
from memlab._text import line_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TextIO, TypeAlias

    _Function: TypeAlias = "Callable[..., Any] | str"

# Columns that are memlab's and not torch's.
_OWN = ("delta", "calls")
DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")


_WRAPPERS = (functools.partial, functools.partialmethod, functools.cached_property)


def _own(thing, name):
    """The attribute NAME that THING really has: mocks and proxies invent any."""
    if inspect.getattr_static(thing, name, None) is None:
        return None
    return getattr(thing, name, None)


def _beneath(function):
    """The function that FUNCTION runs; None if it does not tell."""
    if isinstance(function, property):
        return function.fget
    if isinstance(function, _WRAPPERS):
        return function.func
    inner = _own(function, "__wrapped__")
    return _own(function, "__func__") if inner is None else inner


def code_of(function):
    """The code object that FUNCTION finally runs, behind decorators that reveal the
    wrapped function, methods, partials and properties; None: there is none.
    """
    seen = []
    try:
        while not isinstance(function, types.CodeType):
            if any(function is other for other in seen):
                return None
            seen.append(function)
            inner = _beneath(function)
            function = _own(function, "__code__") if inner is None else inner
    except Exception:  # of an attribute of the program's
        return None
    return function


def functions_in(code, path=()):
    """(qualified name, code object) of each function within CODE."""
    for inner in code.co_consts:
        if not isinstance(inner, types.CodeType):
            continue
        if inner.co_name.startswith("<generic parameters of "):
            # The scope of `def f[T]()` or `class C[T]`, which is in no name.
            yield from functions_in(inner, path)
            continue
        qualified = (*path, inner.co_name)
        # Class bodies are code too, but run once.
        if inner.co_flags & inspect.CO_NEWLOCALS:
            yield ".".join(qualified), inner
            # Nested functions have this in their names; classes do not.
            qualified += ("<locals>",)
        yield from functions_in(inner, qualified)


def codes_named(code, name) -> list:
    """The code objects of functions within CODE whose qualified name is NAME."""
    return [inner for known, inner in functions_in(code) if known == name]


def _name_of(code, function) -> str:
    """The name of CODE's table, registered as FUNCTION."""
    name = getattr(code, "co_qualname", None)
    return name or getattr(function, "__qualname__", code.co_name)


def _parse_target(device):
    """(source, index).  "cuda" is the current device, or the first until CUDA is
    initialised: a query would initialise it.

    Raises ValueError for an invalid device, and for a missing GPU, unless CUDA is not
    initialised yet.
    """
    torch = sys.modules.get("torch")
    begun = torch is not None and torch.cuda.is_initialized()
    if device is None or str(device) == "cuda":
        return "cuda", torch.cuda.current_device() if begun else 0
    source, index = sources.parse_device(device)
    if source == "cuda" and begun and index >= (count := torch.cuda.device_count()):
        raise ValueError(f"there is no cuda:{index}, torch sees {count}")
    return source, index


def why_no_lines(idle) -> Iterator[tuple[str, str]]:
    """Of IDLE, the (name, code) of functions without a line: names, and why none ran; empty:
    nothing points to anything but that they were not called.
    """
    utils = sys.modules.get("torch._dynamo.utils")
    try:
        any_compiled = utils is not None and utils.counters["frames"]["ok"] > 0
    except (AttributeError, KeyError, TypeError):
        any_compiled = False
    compiled, others = {}, {}
    for name, code in idle:
        (compiled if any_compiled and _is_compiled(code) else others)[name] = None
    if compiled:
        yield (
            ", ".join(compiled),
            f"torch.compile has compiled {'it' if len(compiled) == 1 else 'them'}, and what is "
            "compiled has no lines; TORCH_COMPILE_DISABLE=1 runs it line by line",
        )
    if others:
        # A function within a compiled one leaves no trace of its own.
        yield (
            ", ".join(others),
            "not called, or only within code that torch.compile has compiled; "
            "TORCH_COMPILE_DISABLE=1 runs that line by line"
            if any_compiled
            else "",
        )


def _is_compiled(code):
    """Whether torch.compile holds a result for CODE itself."""
    try:
        import torch

        return bool(torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code))
    except (AttributeError, ImportError, TypeError):
        return False


def level_of_program() -> int:
    """The stacklevel with which its caller's warning names a line of the program, not of
    memlab.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("memlab."):
        level, frame = level + 1, frame.f_back
    return level


def _check_columns(columns):
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    there_are = (
        "There are delta, calls, and any field of torch.cuda.memory_stats(), as "
        f"{', '.join(_core.COLUMNS[8:12])}"
    )
    if not columns:
        raise ValueError(f"no column to show. {there_are}")
    for name in columns:
        if name in _OWN or name in _core.COLUMNS:
            continue
        known = [*_OWN, *_core.COLUMNS]
        near = ", ".join(difflib.get_close_matches(str(name), known, 3, 0.4)) or "none"
        raise ValueError(f"{name!r} is not a column; near it are {near}. {there_are}")
    return columns


def _elsewhere(index) -> Iterator[str]:
    """Where the memory is of a program that has none on the GPU that is profiled."""
    used = [gpu for gpu, stats in sources.stats_of_all("cuda").items() if stats["events"]]
    if used and index not in used:
        yield (
            f"while lines were profiled, nothing was allocated on cuda:{index}, but on "
            f"{' and '.join(f'cuda:{gpu}' for gpu in used)}: profile that GPU, by "
            f"target_gpu={used[0]}, set_target_gpu({used[0]}) or memlab lines -g {used[0]}"
        )


class LineProfiler(_core.LineProfiler):
    """Shows the GPU memory of each line of some functions.

        with memlab.LineProfiler(train, Net.forward) as profiler:
            train()
        profiler.print_stats()

    functions: Python functions, methods, or the results of decorators.
    target_gpu: the device whose memory counts: an index, a torch.device, or a string such
        as "cuda:1".  "cuda" or None is the current device when profiling begins, or the first
        if CUDA is not initialised yet.  "cpu" is torch's allocator of host memory, which is
        also used without a GPU: the tables say so.

    Lines of all threads count; generators and coroutines count while they run.  The
    program's memory, its statistics and its cache are not changed.  Raises ValueError
    for a target_gpu that is invalid or missing; warns if a function has no Python code.
    """

    def __init__(self, *functions: object, target_gpu: object = 0) -> None:
        self._functions = []  # (name, code, lines of its file)
        self._source = None  # when enabled
        self._target_gpu = target_gpu
        _parse_target(target_gpu)
        for function in functions:
            self.add_function(function)

    @property
    def target_gpu(self) -> object:
        """The device whose memory counts.  It can be set at any time, also in profiled
        code.
        """
        return self._target_gpu

    @target_gpu.setter
    def target_gpu(self, device: object) -> None:
        _parse_target(device)
        self._target_gpu = device
        if not self.enabled:
            return
        source, index = self._device()
        if source == self._source:
            self._target(source, index)
        else:
            # Each source has a window of its own.
            self.disable()
            self.enable()

    def _device(self):
        """(source, index) of the target."""
        source, index = _parse_target(self._target_gpu)
        if source == "cuda" and sources.default() == "cpu":
            return "cpu", 0
        return source, index

    def add_function(self, function: object) -> None:
        """Profiles FUNCTION too; does nothing if it is already profiled."""
        code = code_of(function)
        if not isinstance(code, types.CodeType):
            warnings.warn(
                f"Could not extract a code object for the object {function!r}; give a "
                "function or method that is written in Python, such as Net.forward",
                stacklevel=level_of_program(),
            )
            return
        self._register(code, _name_of(code, function))

    def _register(self, code, name):
        """Profiles CODE too, as the function NAME."""
        # Now: the file may be edited before the program ends.
        linecache.checkcache(code.co_filename)
        lines = linecache.getlines(code.co_filename)
        if self._add(code) == len(self._functions):
            self._functions.append((name, code, lines))

    def _ran_as(self, code):
        """The name of the profiled CODE if a line of it ran, else None."""
        for number, (name, registered, _) in enumerate(self._functions):
            if registered is code and self._rows(number, ()):
                return name
        return None

    def enable(self) -> None:
        """Starts profiling; does nothing if it already profiles.

        Raises memlab.Error if no memory can be followed, with what to do, and
        ValueError for a missing target_gpu.
        """
        source, index = self._device()
        sources.ensure(source)
        self._source = source
        self._enable(source, index)

    def disable(self) -> None:
        """Stops profiling; the results stay."""
        self._disable()

    def forget(self) -> None:
        """Forgets the results; profiling continues."""
        self._clear(False)

    def clear(self) -> None:
        """Forgets the results and the profiled functions."""
        self._clear(True)
        self._functions.clear()

    def __enter__(self) -> LineProfiler:
        self.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        self.disable()

    def _chosen(self, function):
        """Numbers of the functions that FUNCTION selects, as in display()."""
        if function is None:
            return range(len(self._functions))
        chosen = []
        for wanted in function if isinstance(function, (list, tuple)) else [function]:
            code = None if isinstance(wanted, str) else code_of(wanted)
            found = [
                number
                for number, (name, registered, _) in enumerate(self._functions)
                if registered is code or name == wanted
            ]
            if not found:
                known = ", ".join(name for name, *_ in self._functions) or "none"
                raise ValueError(f"{wanted!r} is not profiled; these are: {known}")
            chosen += found
        return list(dict.fromkeys(chosen))

    def display(
        self,
        func: _Function | Sequence[_Function] | None = None,
        columns: str | Sequence[str] = DEFAULT_COLUMNS,
    ) -> line_text.Tables:
        """The results, as an object that shows itself as text and, in notebooks, as
        HTML.

        func: a function, its qualified name, or a list of either; None for all.
        columns: names of torch.cuda.memory_stats(), each over the time from one line to the next;
            of several runs of a line, the largest counts.  Counters such as num_ooms show their
            rise.  Also "delta", the bytes that a line left allocated, summed over its runs, and
            "calls", the number of its runs.

        Raises ValueError for a function that is not profiled, or an unknown column.
        """
        columns = _check_columns(columns)
        figures = tuple(name for name in columns if name not in _OWN)
        tables, idle = [], []
        for number in self._chosen(func):
            name, code, lines = self._functions[number]
            rows = self._rows(number, figures)
            if rows:
                tables.append(line_text.Table(name, code, rows, columns, lines))
            else:
                idle.append((name, code))
        why_not = "; ".join(
            f"no line of {names} ran: {why}" for names, why in why_no_lines(idle) if why
        )
        return line_text.Tables(tables, columns, list(self._notes()), why_not)

    def _notes(self):
        """Notes on the figures."""
        try:
            wanted, index = _parse_target(self._target_gpu)
            if wanted == "cuda" and self._source == "cpu":
                yield "no GPU here: these are bytes of torch's host memory"
            elif wanted == "cuda":
                yield from _elsewhere(index)
        except ValueError as error:
            yield f"{error}: these figures show no memory"
        if self.lost_lines:
            yield (
                f"{self.lost_lines} runs of lines have no figures: too many threads ran "
                "profiled functions at once, or memory was short"
            )

    def print_stats(
        self,
        func: _Function | Sequence[_Function] | None = None,
        columns: str | Sequence[str] = DEFAULT_COLUMNS,
        stream: TextIO | None = None,
    ) -> None:
        """Writes display(func, columns) as text to STREAM; None: sys.stdout."""
        stream = sys.stdout if stream is None else stream
        line_text.write(self.display(func, columns), stream)
