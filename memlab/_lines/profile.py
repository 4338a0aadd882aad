"""@profile and @profile_every: line tables without set-up."""

from __future__ import annotations

import atexit
import contextvars
import functools
import inspect
import itertools
import os
import sys
import warnings
import weakref
from typing import overload

from memlab._lines.lines import (
    DEFAULT_COLUMNS,
    LineProfiler,
    _check_columns,
    _parse_target,
    code_of,
    level_of_program,
    why_no_lines,
)
from memlab._text import line_text, terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

# All profilers of this file; set_target_gpu() sets their target.
_profilers = weakref.WeakSet()
_target_gpu = 0
_global = None
# Printed at exit: (code object, columns).
_at_exit = []
# The process that prints: a forked child does not share its parent's memory.
_process = os.getpid()
_said = set()


def _made():
    profiler = LineProfiler()
    # Bypasses the check: _enable() reports a missing GPU.
    profiler._target_gpu = _target_gpu
    _profilers.add(profiler)
    return profiler


def _global_profiler():
    global _global
    if _global is None:
        _global = _made()
        atexit.register(_print_at_exit)
    return _global


def _enable(profiler):
    """A decorator must not keep the program from running."""
    if profiler.enabled:
        return
    try:
        profiler.enable()
    except Exception as error:
        text = f"memlab: lines are not profiled: {error}"
        if text not in _said:
            _said.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=level_of_program())


def _is_worker():
    """Whether this process is a DataLoader's worker, its loop at an end or not."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    process = sys.modules.get("multiprocessing.process")
    if worker is None or process is None:
        return False
    target = getattr(process.current_process(), "_target", None)
    return target is not None and target is getattr(worker, "_worker_loop", None)


def _is_started():
    """Whether multiprocessing started this process."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _printing(show):
    """Calls SHOW() if there is something to show.  No failure reaches the program."""
    if os.getpid() != _process or _is_worker():
        return
    try:
        show()
    except BrokenPipeError:
        # The reader has left, as in `train.py | head`.  At exit Python would write the rest
        # again, and fail for it.
        if show is _print_tables:
            terminal.forget(sys.stdout)
    except Exception as error:
        terminal.say(f"memlab: line tables could not be shown: {error}", sys.stderr)


def _print_at_exit():
    _printing(_print_tables)


def _print_tables():
    was_enabled = _global.enabled
    _global.disable()
    idle = []
    for code, columns in _at_exit:
        tables = _global.display(code, columns)
        if tables:
            line_text.write(tables, sys.stdout)
            print()
        else:
            idle += [(name, known) for name, known, _ in _global._functions if known is code]
    if was_enabled and not _is_started():
        for names, why in why_no_lines(idle):
            if why:
                print(f"memlab: profiled, but no line ran: {names}: {why}")
            else:
                print(f"memlab: profiled but never called: {names}")


@overload
def profile(func: _F, columns: str | Sequence[str] = ...) -> _F: ...
@overload
def profile(
    func: None = None, columns: str | Sequence[str] = ...
) -> Callable[[_F], _F]: ...
def profile(
    func: Callable[..., Any] | None = None,
    columns: str | Sequence[str] = DEFAULT_COLUMNS,
) -> Any:
    """Shows the GPU memory of each line of FUNC when the program ends.

        @memlab.profile
        def train(): ...

    columns: as in LineProfiler.display(), also as @profile(columns=...).  Of several
    calls, the largest figure of each line counts.  Returns FUNC itself, unchanged.  The
    tables appear after an error or Ctrl-C too, but not if the program ends at once, as
    by SIGTERM or os._exit().
    """
    if func is None:
        return functools.partial(profile, columns=columns)
    columns = _check_columns(columns)
    profiler = _global_profiler()
    profiler.add_function(func)
    _enable(profiler)
    code = code_of(func)
    shown = any(code is other and columns == wanted for other, wanted in _at_exit)
    if code is not None and not shown:
        _at_exit.append((code, columns))
    return func


def profile_every(
    output_interval: int = 1,
    enable: bool = True,
    columns: str | Sequence[str] = DEFAULT_COLUMNS,
) -> Callable[[_F], _F]:
    """Prints the GPU memory of each line of a function after every OUTPUT_INTERVAL
    calls, for these calls only.

    enable: False leaves the function unchanged.  columns: as in LineProfiler.display().
    Calls that raise count too; those of generators and coroutines count once they end.
    A nested call of the same function counts, but the table waits for the outer one.
    Raises ValueError for an interval below 1, and for unknown columns.
    """
    if not isinstance(output_interval, int):
        raise TypeError(
            f"output_interval must be an int, not {output_interval!r}: write "
            "@profile_every() or @profile_every(10) above the function"
        )
    if output_interval < 1:
        raise ValueError(f"output_interval must be at least 1, not {output_interval!r}")
    columns = _check_columns(columns)
    if not enable:
        return lambda func: func
    return functools.partial(_decorate, output_interval, columns)


def _decorate(interval, columns, func):
    # The function inside a class's wrapper, which itself cannot be called.
    if isinstance(func, (classmethod, staticmethod)):
        return type(func)(_decorate(interval, columns, func.__func__))
    if isinstance(func, property) and func.fget is not None:
        return func.getter(_decorate(interval, columns, func.fget))
    profiler = _made()
    profiler.add_function(func)
    if not profiler._functions or not callable(func):
        return func
    _enable(profiler)
    return _wrapped(func, _Calls(profiler, interval, columns))


class _Calls:
    """Counts a function's calls, each a `with` statement, and prints after every
    interval.
    """

    def __init__(self, profiler, interval, columns):
        self._profiler = profiler
        self._interval = interval
        self._columns = columns
        self._numbers = itertools.count(1)
        self._due = False
        self._inside = contextvars.ContextVar("inside", default=False)

    def outermost(self):
        """Marks this thread or task as within a call; returns leave()'s argument."""
        return None if self._inside.get() else self._inside.set(True)

    def leave(self, token):
        if token is not None:
            self._inside.reset(token)
        self.end(not self._inside.get())

    def end(self, outermost=True):
        if next(self._numbers) % self._interval == 0:
            self._due = True
        if outermost and self._due:
            self._due = False
            if self._profiler.enabled:
                _printing(self._show)

    def _show(self):
        self._profiler.print_stats(columns=self._columns)
        self._profiler.forget()


def _wrapped(func, calls):
    """FUNC with its calls counted, as the same kind of function."""
    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def run(*args, **kwargs):
            token = calls.outermost()
            try:
                return await func(*args, **kwargs)
            finally:
                calls.leave(token)

    elif inspect.isasyncgenfunction(func):

        @functools.wraps(func)
        async def run(*args, **kwargs):
            items = func(*args, **kwargs)
            step = items.asend(None)
            try:
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        step = items.asend((yield item))
                    except GeneratorExit:
                        await items.aclose()
                        raise
                    except BaseException as error:
                        step = items.athrow(error)
            finally:
                calls.end()

    elif inspect.isgeneratorfunction(func):

        @functools.wraps(func)
        def run(*args, **kwargs):
            try:
                return (yield from func(*args, **kwargs))
            finally:
                calls.end()

    else:

        @functools.wraps(func)
        def run(*args, **kwargs):
            token = calls.outermost()
            try:
                return func(*args, **kwargs)
            finally:
                calls.leave(token)

    return run


def set_target_gpu(gpu_id: object) -> None:
    """Sets the device whose memory @profile and @profile_every show from here on, also
    if it is called in profiled code: an index, a torch.device, or a string such as
    "cuda:1".

    Until then, it is the first GPU.  In a run of several processes with a GPU each,
    pass the local rank: "cuda" is the current device now, not one set later.
    """
    global _target_gpu
    _parse_target(gpu_id)
    _target_gpu = gpu_id
    for profiler in list(_profilers):
        profiler.target_gpu = gpu_id


def clear_global_line_profiler() -> None:
    """Forgets @profile's results and the functions that it profiles."""
    if _global is not None:
        _global.clear()
    _at_exit.clear()
