"""memlab.LineProfiler: what memory did while each line of some functions ran."""

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
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO, TypeAlias

    _Function: TypeAlias = "Callable[..., Any] | str"

# Columns that are memlab's and not torch's.
_OWN = ("delta", "calls")
DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")


_WRAPPERS = (functools.partial, functools.partialmethod, functools.cached_property)


def _own(thing, name):
    """The attribute NAME that THING really has: mocks and proxies make up any."""
    if inspect.getattr_static(thing, name, None) is None:
        return None
    return getattr(thing, name, None)


def _beneath(function):
    """What FUNCTION says that it runs; None where it does not say."""
    if isinstance(function, property):
        return function.fget
    if isinstance(function, _WRAPPERS):
        return function.func
    inner = _own(function, "__wrapped__")
    return _own(function, "__func__") if inner is None else inner


def code_of(function):
    """The code object of what FUNCTION runs in the end: below decorators that say whom they
    wrap, methods, partials and properties; None where there is none."""
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
            # A scope around `def f[T]()` and `class C[T]`, which no name tells of.
            yield from functions_in(inner, path)
            continue
        qualified = (*path, inner.co_name)
        # The bodies of classes are code too, which runs once.
        if inner.co_flags & inspect.CO_NEWLOCALS:
            yield ".".join(qualified), inner
            # Functions within functions have this in their names, classes do not.
            qualified += ("<locals>",)
        yield from functions_in(inner, qualified)


def codes_named(code, name) -> list:
    """The code objects of functions within CODE whose qualified name is NAME."""
    return [inner for known, inner in functions_in(code) if known == name]


def _name_of(code, function) -> str:
    """What a table of CODE, registered as FUNCTION, is called."""
    name = getattr(code, "co_qualname", None)
    return name or getattr(function, "__qualname__", code.co_name)


def _parse_target(device):
    """(source, index).  "cuda" is the current device, which is the first until CUDA is
    initialised: to ask would do that.

    Raises ValueError for what is no device, and for a GPU that is not there: before CUDA
    is initialised nobody asks for that either."""
    torch = sys.modules.get("torch")
    begun = torch is not None and torch.cuda.is_initialized()
    if device is None or str(device) == "cuda":
        return "cuda", torch.cuda.current_device() if begun else 0
    source, index = sources.parse_device(device)
    if source == "cuda" and begun and index >= (count := torch.cuda.device_count()):
        raise ValueError(f"there is no cuda:{index}, torch sees {count}")
    return source, index


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


class LineProfiler(_core.LineProfiler):
    """Shows the GPU memory of each line of some functions.

        with memlab.LineProfiler(train, Net.forward) as profiler:
            train()
        profiler.print_stats()

    functions: Python functions, methods, or what decorators made of them.
    target_gpu: the device whose memory counts: an index, a torch.device, or a string such
        as "cuda:1".  "cuda" or None is the device that is current as profiling begins, the
        first where CUDA is not initialised yet.  "cpu" is torch's allocator of host memory,
        which also stands in where there is no GPU: the tables say so.

    Lines of all threads count, generators and coroutines for the time that they run.  The
    program's memory, its statistics and its cache are left alone.  Raises ValueError for a
    target_gpu that is no device or not there; warns where a function has no Python code.
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
        """The device whose memory counts; set it at any time, also in profiled code."""
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
        """Profiles FUNCTION too; nothing where it is profiled already."""
        code = code_of(function)
        if not isinstance(code, types.CodeType):
            warnings.warn(
                f"Could not extract a code object for the object {function!r}; give a "
                "function or method that is written in Python, such as Net.forward",
                stacklevel=2,
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
        """The name of the profiled CODE where a line of it ran, else None."""
        for number, (name, registered, _) in enumerate(self._functions):
            if registered is code and self._rows(number, ()):
                return name
        return None

    def enable(self) -> None:
        """Profiles from here on; nothing where it does already.

        Raises memlab.Error where there is no memory to follow, with the remedy, and
        ValueError where target_gpu is not there.
        """
        source, index = self._device()
        sources.ensure(source)
        self._source = source
        self._enable(source, index)

    def disable(self) -> None:
        """Profiles no more; what was seen stays."""
        self._disable()

    def forget(self) -> None:
        """Forgets what was seen; the functions are profiled on."""
        self._clear(False)

    def clear(self) -> None:
        """Forgets what was seen and which functions are profiled."""
        self._clear(True)
        self._functions.clear()

    def __enter__(self) -> LineProfiler:
        self.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        self.disable()

    def _chosen(self, function):
        """Numbers of the functions that FUNCTION, as in display(), means."""
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
        """What was seen, as an object that shows itself as text and, in notebooks, HTML.

        func: a function, its qualified name, or a list of either; None for all.
        columns: names of torch.cuda.memory_stats(), each over the time from one line to
            the next; of several runs of a line the largest counts.  Counters such as
            num_ooms say by how much they rose.  Also "delta", the bytes that a line left
            allocated, summed over its runs, and "calls", how often it ran.

        Raises ValueError for a function that is not profiled or a column there is not.
        """
        columns = _check_columns(columns)
        figures = tuple(name for name in columns if name not in _OWN)
        tables = []
        for number in self._chosen(func):
            name, code, lines = self._functions[number]
            rows = self._rows(number, figures)
            if rows:
                tables.append(line_text.Table(name, code, rows, columns, lines))
        return line_text.Tables(tables, columns, list(self._notes()))

    def _notes(self):
        """What is to be known of the figures."""
        try:
            wanted, _ = _parse_target(self._target_gpu)
            if wanted == "cuda" and self._source == "cpu":
                yield "no GPU here: these are bytes of torch's host memory"
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
        """Writes display(func, columns) as text to STREAM, sys.stdout where it is None."""
        stream = sys.stdout if stream is None else stream
        line_text.write(self.display(func, columns), stream)
