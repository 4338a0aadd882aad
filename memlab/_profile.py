"""@profile and @profile_every: line tables without a line of set-up."""

from __future__ import annotations

import atexit
import functools
import inspect
import sys
import warnings
from typing import overload

from memlab import _line_text
from memlab._errors import Error
from memlab._lines import DEFAULT_COLUMNS, LineProfiler, code_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    _F = TypeVar("_F", bound=Callable[..., Any])

# All that this file made, of which set_target_gpu() sets the target.
_profilers = []
_global = None
# What is printed at exit: (code object, columns).
_at_exit = []


def _made(target_gpu):
    profiler = LineProfiler(target_gpu=target_gpu)
    _profilers.append(profiler)
    return profiler


def _global_profiler():
    global _global
    if _global is None:
        _global = _made(0)
        atexit.register(_print_at_exit)
    return _global


def _enable(profiler):
    """A decorator must not keep the program from running."""
    if profiler.enabled:
        return
    try:
        profiler.enable()
    except Error as error:
        warnings.warn(
            f"memlab: lines are not profiled: {error}", RuntimeWarning, stacklevel=3
        )


def _print_at_exit():
    for function, columns in _at_exit:
        tables = _global.display(function, columns)
        if tables:
            _line_text.write(tables, sys.stdout)
            print()


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
    """Shows the GPU memory of each line of FUNC when the program ends, however it ends.

        @memlab.profile
        def train(): ...

    columns: as in LineProfiler.display(), also as @profile(columns=...).  Of several calls
    the largest figure of each line counts.  FUNC itself is returned, unchanged.
    """
    if func is None:
        return functools.partial(profile, columns=columns)
    profiler = _global_profiler()
    profiler.add_function(func)
    _enable(profiler)
    code = code_of(func)
    if code is not None:
        _at_exit.append((code, columns))
    return func


def profile_every(
    output_interval: int = 1,
    enable: bool = True,
    columns: str | Sequence[str] = DEFAULT_COLUMNS,
) -> Callable[[_F], _F]:
    """Prints the GPU memory of each line of a function after every OUTPUT_INTERVAL calls,
    of these calls alone.

    enable: False leaves the function as it is.  columns: as in LineProfiler.display().
    Calls that raise count too.  Raises ValueError for an interval below 1.
    """
    if output_interval < 1:
        raise ValueError(f"output_interval must be at least 1, not {output_interval!r}")
    if not enable:
        return lambda func: func

    def decorate(func):
        profiler = _made(_profilers[0].target_gpu if _profilers else 0)
        profiler.add_function(func)
        _enable(profiler)
        calls = 0

        def count_call():
            nonlocal calls
            calls += 1
            if calls % output_interval == 0:
                profiler.print_stats(columns=columns)
                profiler.forget()

        if inspect.iscoroutinefunction(func):

            @functools.wraps(func)
            async def run(*args, **kwargs):
                try:
                    return await func(*args, **kwargs)
                finally:
                    count_call()

        else:

            @functools.wraps(func)
            def run(*args, **kwargs):
                try:
                    return func(*args, **kwargs)
                finally:
                    count_call()

        return run

    return decorate


def set_target_gpu(gpu_id: object) -> None:
    """The device whose memory @profile and @profile_every show from here on, also when it
    is called in profiled code: an index, a torch.device, or a string such as "cuda:1"."""
    _global_profiler()
    for profiler in _profilers:
        profiler.target_gpu = gpu_id


def clear_global_line_profiler() -> None:
    """Forgets what @profile has seen and which functions it profiles."""
    if _global is not None:
        _global.clear()
    _at_exit.clear()
