"""What the program reports while it is recorded: phases, marks and steps."""

from __future__ import annotations

import functools
import inspect
import sys

from memlab import _core
from memlab._native import linemaps
from memlab._record import optimizers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])


class phase:
    """Names a part of the program in every current recording.

        with memlab.phase("eval"):
            evaluate()

        @memlab.phase("load")
        def load(): ...

    name: a str, of which 1024 bytes are kept.  Raises TypeError for anything else.

    Phases nest and may be open in several threads.  A decorated generator is in the
    phase while its own code runs, a decorated coroutine from its start to its end.
    Without a recording, and in a forked child, it does nothing.
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        self._name = name
        self._open = []

    def __enter__(self) -> phase:
        self._open.append(_core.begin_phase(self._name))
        return self

    def __exit__(self, *exception: object) -> None:
        _core.end_phase(self._name, self._open.pop())

    def __call__(self, function: _Function) -> _Function:
        # Each call has its own phase, because calls may overlap.
        name = self._name
        if inspect.isasyncgenfunction(function):
            raise TypeError(
                "memlab.phase cannot decorate an asynchronous generator: write "
                "`with memlab.phase(name):` within it"
            )
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def in_phase(*args, **kwargs):
                return (yield from _in_phase(name, function(*args, **kwargs)))

        elif inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def in_phase(*args, **kwargs):
                with phase(name):
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def in_phase(*args, **kwargs):
                with phase(name):
                    return function(*args, **kwargs)

        return in_phase


def _in_phase(name, generator):
    """Runs GENERATOR in the phase NAME, which is left at each yield."""
    resume, value = generator.send, None
    while True:
        try:
            with phase(name):
                yielded = resume(value)
        except StopIteration as stop:
            return stop.value
        try:
            resume, value = generator.send, (yield yielded)
        except GeneratorExit:
            with phase(name):
                generator.close()
            raise
        except BaseException as error:
            resume, value = generator.throw, error


def mark(name: str) -> None:
    """Marks this instant in every current recording, as in memlab.mark("epoch 3").

    name: a str, of which 1024 bytes are kept.  Raises TypeError for anything else.
    Without a recording, and in a forked child, it does nothing.
    """
    _core.mark(name)


def step() -> None:
    """Marks the end of a training step in every current recording.

    Only for a loop without a torch.optim.Optimizer, whose steps are counted anyway;
    with one, this counts as one more optimizer.  Call it once per iteration.  Without a
    recording, and in a forked child, it does nothing.
    """
    if _core.noting():
        _steps.stepped("memlab.step")


class _Steps:
    """Reports steps by the process's optimizers.

    With several optimizers in an iteration, as in a GAN, the first one that stepped
    ends the step: a step ends when an optimizer steps that has stepped since the last
    end.
    """

    def __init__(self):
        self._since = set()
        self._watching = False

    def start(self):
        if not self._watching and "torch" in sys.modules:
            self._watching = True
            optimizers.watch(self)

    def stop(self):
        self._watching = False
        self._since = set()
        optimizers.forget(self)

    def before_step(self, optimizer):
        """Does nothing: the end of a step reports it."""

    def after_step(self, optimizer):
        if _core.noting():
            self.stepped(id(optimizer))

    def stepped(self, who):
        if self._since and who not in self._since:
            self._since.add(who)
            return
        self._since = {who}
        _core.note_step()
        linemaps.take()


_steps = _Steps()


def start() -> None:
    """A recording has begun: counts the program's steps, and samples memory."""
    _core.sample(True)
    _steps.start()


def stop() -> None:
    """A recording has ended; after the last one, steps are no longer counted."""
    if not _core.noting():
        _steps.stop()
