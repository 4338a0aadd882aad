"""Composer's profiler without Composer: passes records to trace handlers.

Owns the interface of `Trainer(profiler=...)` for Composer's engine.  Composer's objects
are used only through their calls: its state, its trace handlers, and its actions, known
by their values.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import time

from memlab._files import names
from memlab._record.composer_hooks import stands_for
from memlab.callbacks._composer.callback import Callback
from memlab.callbacks._composer.schedule import ProfilerAction
from memlab.callbacks._composer.torch_profiler import TorchProfiler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any


class Marker:
    """A named span, instant or counter of the training loop, passed to trace handlers.

    Profiler.marker() makes it.  Use it by start() and finish(), as `with marker:`, or
    as a decorator.
    """

    def __init__(self, profiler, name, actions, on_start, on_finish, categories):
        self._profiler = profiler
        self._actions = actions
        self._on_start, self._on_finish = on_start, on_finish
        self._recorded = False
        self.name, self.categories = name, categories

    def _recording(self):
        profiler = self._profiler
        # Composer requests markers around every callback of every event.
        if not profiler.trace_handlers:
            return False
        return profiler.schedule(profiler.state) in self._actions

    def _tell(self, kind, **what):
        now = time.time_ns()
        for handler in self._profiler.trace_handlers:
            getattr(handler, f"process_{kind}_event")(
                name=self.name,
                categories=self.categories,
                timestamp=self._profiler.state.timestamp,
                wall_clock_time_ns=now,
                **what,
            )

    def start(self) -> None:
        """Begins a span; a span left open by an exception is dropped."""
        self._recorded = self._recording()
        if self._recorded:
            self._tell("duration", is_start=True)
            if self._on_start:
                self._tell("instant")

    def finish(self) -> None:
        """Ends the span, if its start was passed on."""
        recorded, self._recorded = self._recorded, False
        if recorded:
            self._tell("duration", is_start=False)
            if self._on_finish:
                self._tell("instant")

    def instant(self) -> None:
        """Records an instant."""
        if self._recording():
            self._tell("instant")

    def counter(self, values: dict[str, int | float]) -> None:
        """Records some counters' values at this instant."""
        if self._recording():
            self._tell("counter", values=values)

    def __enter__(self) -> Marker:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.finish()

    def __call__(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """FUNCTION, with each call recorded as a span; without one the decorator for it,
        as in @marker().
        """
        if function is None:
            return self

        @functools.wraps(function)
        def marked(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return marked


_RECORDED = (
    ProfilerAction.WARMUP,
    ProfilerAction.ACTIVE,
    ProfilerAction.ACTIVE_AND_SAVE,
)


class Profiler(Callback):
    """What Composer calls a profiler, with memlab's TorchProfiler in it.

        from memlab.callbacks.composer import Profiler, cyclic_schedule

        trainer = Trainer(..., profiler=Profiler(schedule=cyclic_schedule()))

    schedule: a function of Composer's state that returns a ProfilerAction, as
        cyclic_schedule() makes.
    trace_handlers: Composer's trace handlers, one or several, which get markers of the
        training loop and the traces of torch.
    sys_prof_cpu, sys_prof_memory, sys_prof_disk, sys_prof_net,
        sys_prof_stats_thread_interval_seconds: as in Composer, whose own SystemProfiler
        does it, and only where there are trace_handlers, which receive all of it.
    torch_prof_...: as the arguments of TorchProfiler.  It is made if shapes, memory,
        stacks or flops are requested.

    Raises ValueError if torch_prof_memory_filename is given and not all of
    torch_prof_with_stack, torch_prof_record_shapes and torch_prof_profile_memory, as in
    Composer; a TorchProfiler among the callbacks draws the timeline without them,
    if this Profiler makes none.
    """

    def __init__(
        self,
        schedule: Callable[[Any], Any],
        trace_handlers: Any = (),
        sys_prof_cpu: bool = True,
        sys_prof_memory: bool = False,
        sys_prof_disk: bool = False,
        sys_prof_net: bool = False,
        sys_prof_stats_thread_interval_seconds: float = 0.5,
        torch_prof_folder: str = "{run_name}/torch_traces",
        torch_prof_filename: str = "rank{rank}.{batch}.pt.trace.json",
        torch_prof_remote_file_name: str | None = (
            "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json"
        ),
        torch_prof_memory_filename: str | None = None,
        torch_prof_memory_remote_file_name: str | None = (
            "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.memory_trace.html"
        ),
        torch_prof_overwrite: bool = False,
        torch_prof_use_gzip: bool = False,
        torch_prof_record_shapes: bool = False,
        torch_prof_profile_memory: bool = True,
        torch_prof_with_stack: bool = False,
        torch_prof_with_flops: bool = True,
        torch_prof_num_traces_to_keep: int = -1,
    ) -> None:
        if not callable(schedule):
            raise TypeError(
                "schedule must be a function of the state, as cyclic_schedule() returns, "
                f"not {schedule!r}"
            )
        self.schedule = schedule
        self.state = None
        # For the epoch in which a resumed run was stopped.
        self.resumption_batch_idx = 0
        self.trace_handlers = trace_handlers
        self._markers = {}
        self._system = {
            "profile_cpu": sys_prof_cpu,
            "profile_memory": sys_prof_memory,
            "profile_disk": sys_prof_disk,
            "profile_net": sys_prof_net,
        }
        self._system_seconds = sys_prof_stats_thread_interval_seconds
        # Composer makes uploaders of these; the keys are the files' names.
        self.remote_filenames = []
        trace = self._remote(torch_prof_remote_file_name)
        timeline = self._remote(torch_prof_memory_remote_file_name)
        for handler in self.trace_handlers:
            for name in ("remote_file_name", "merged_trace_remote_file_name"):
                # A stand-in of a handler has anything there.
                if isinstance(getattr(handler, name, None), str):
                    setattr(handler, name, self._remote(getattr(handler, name)))

        needed = {
            "torch_prof_with_stack": torch_prof_with_stack,
            "torch_prof_record_shapes": torch_prof_record_shapes,
            "torch_prof_profile_memory": torch_prof_profile_memory,
        }
        if torch_prof_memory_filename is not None and not all(needed.values()):
            values = ", ".join(f"{name}={value}" for name, value in needed.items())
            raise ValueError(
                "torch_prof_memory_filename requires torch_prof_with_stack, "
                "torch_prof_record_shapes and torch_prof_profile_memory to be true, got "
                f"{values}; or give memory_filename to a TorchProfiler among the "
                "callbacks, which needs none of them, and torch_prof_profile_memory=False "
                "and torch_prof_with_flops=False here"
            )
        self._callbacks = []
        if any(needed.values()) or torch_prof_with_flops:
            self._callbacks.append(
                TorchProfiler(
                    folder=torch_prof_folder,
                    filename=torch_prof_filename,
                    remote_file_name=trace,
                    memory_filename=torch_prof_memory_filename,
                    memory_remote_file_name=timeline,
                    overwrite=torch_prof_overwrite,
                    use_gzip=torch_prof_use_gzip,
                    record_shapes=torch_prof_record_shapes,
                    profile_memory=torch_prof_profile_memory,
                    with_stack=torch_prof_with_stack,
                    with_flops=torch_prof_with_flops,
                    num_traces_to_keep=torch_prof_num_traces_to_keep,
                )
            )

    def _remote(self, name):
        if not name:
            return None
        self.remote_filenames.append(name)
        return names.remote_key(name)

    @property
    def trace_handlers(self) -> list[Any]:
        """The trace handlers, a list; one or several can be assigned."""
        return self._trace_handlers

    @trace_handlers.setter
    def trace_handlers(self, handlers: Any) -> None:
        alone = not isinstance(handlers, (list, tuple))
        self._trace_handlers = [handlers] if alone else list(handlers)

    def bind_to_state(self, state: Any) -> None:
        """Adds the profiler and its parts to the callbacks of Composer's state; the
        Trainer calls this.
        """
        self.state = state
        callbacks = [self]
        # Always loaded when a Trainer of Composer runs.
        system = sys.modules.get("composer.profiler.system_profiler")
        if system is not None and any(self._system.values()) and self.trace_handlers:
            callbacks.append(
                system.SystemProfiler(
                    **self._system, stats_thread_interval_seconds=self._system_seconds
                )
            )
        state.callbacks.extend(callbacks + self._callbacks + self.trace_handlers)

    def record_chrome_json_trace_file(self, filepath: str | pathlib.Path) -> None:
        """Passes a trace in Chrome's JSON format to the trace handlers."""
        for handler in self.trace_handlers:
            handler.process_chrome_json_trace_file(pathlib.Path(filepath))

    def marker(
        self,
        name: str,
        actions: Sequence[Any] = _RECORDED,
        record_instant_on_start: bool = False,
        record_instant_on_finish: bool = False,
        categories: Iterable[str] = (),
    ) -> Marker:
        """The marker NAME, made if needed.

        actions: the schedule's actions during which it is passed to the trace handlers.
        record_instant_on_start, record_instant_on_finish: record the ends of a span as
        instants too.  categories: words that handlers store with it.

        Raises RuntimeError before the profiler is given to a Trainer.
        """
        if self.state is None:
            raise RuntimeError(
                "give the profiler to a Trainer before using markers: Trainer(profiler=...)"
            )
        marker = self._markers.get(name)
        if marker is None:
            marker = self._markers[name] = Marker(
                self, name, actions, record_instant_on_start, record_instant_on_finish, ()
            )
        marker.categories = categories
        return marker

    def after_load(self, state: Any, logger: Any) -> None:
        """A checkpoint was loaded: the schedule begins at its batch."""
        self.resumption_batch_idx = int(state.timestamp.batch_in_epoch)


stands_for(Profiler, "composer.profiler.profiler", "Profiler")
