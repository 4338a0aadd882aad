"""MemProfiler: figures of memory at the start and the end of chosen calls of functions.

Owns the count of calls and the choice of figures.  _memprofiler/hooks.py,
_memprofiler/fsdp.py and _memprofiler/files.py have the parts of these names.  Each call
has its own state: calls may be interleaved, nested, recursive and in several threads.
The trainer's folder and optimizers are found by their attributes.

A failure during a training is reported once, in a warning, and its part is then left
out; it never raises into the training.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections import defaultdict
from dataclasses import dataclass, field, fields
from typing import Any

from memlab._errors import tell
from memlab._files import upload
from memlab.callbacks import npp_hooks
from memlab.callbacks._memprofiler import compiled, config, outcome
from memlab.callbacks._memprofiler.config import misconfiguration, resolve
from memlab.callbacks._memprofiler.files import Files
from memlab.callbacks._memprofiler.fsdp import FsdpMemory
from memlab.callbacks._memprofiler.hooks import Hooks, safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import ParamSpec, TypeVar

    from memlab._record.memory_snapshot import MemorySnapshot
    from memlab.callbacks._memprofiler.config import (
        MemProfilerCfg,
        MemProfilerSchedule,
    )

    _P = ParamSpec("_P")
    _R = TypeVar("_R")
    # rank, name of the function, number of the call, "start" or "end"
    SnapKey = tuple[int, str, int, str]

_CONTEXTS = "start", "end"


class _Call:
    """One call of a profiled function."""

    def __init__(self, name, managed):
        self.name = name
        self.managed = managed  # a context reports its end
        self.function = None  # the memprofilable function that began it, if any
        self.begun = set()  # of _CONTEXTS
        self.number = None  # None: no longer counted
        self.collecting = False
        self.count = None  # its hooks' count, from its start to its end


@dataclass
class MemProfInternalState:
    """MemProfiler's state over all calls so far."""

    # By (name of the function, "start" or "end"): whether calls are still counted, and
    # their number.
    can_collect: dict[tuple[str, str], bool] = field(default_factory=dict)
    snap_indices: dict[tuple[str, str], int] = field(default_factory=dict)
    curr_pid: int | None = None
    configured_hooks: dict[str, list[Callable]] = field(default_factory=dict)
    hook_handles: dict[Callable, list[Any]] = field(default_factory=dict)
    done_prof_funcs: list[str] = field(default_factory=list)
    base_collect_func_set: set[str] | None = None
    # Modules with the attributes that memlab set on them.
    attributes: list[tuple[Any, list[str]]] = field(default_factory=list)
    collecting: int = 0  # calls between their start and their end
    copied: bool = False  # what runs may be a copy, in another process


class MemProfiler(Hooks, FsdpMemory, Files):
    """Collects figures of memory at the start and the end of calls of chosen functions.

        class Model(ProfilerHooksMixin, LightningModule):
            @MemProfiler.memprofilable
            def training_step(self, batch, batch_idx): ...

        Model(memprofiler_cfg=MemProfilerCfg(enabled=True))

    Arguments are ignored.

    memory_stats: by key, as "0.training_step.2.end" (rank, function, number of the call
        from 1, start or end), a dict of ints: rss and vms, the host memory of the
        process; the fields of torch.cuda.memory_stats() of the current device, and with
        "cuda:1." and the like before them of the others in use; the attributes that
        hooks set on the profiled module, and with "modules.NAME." before them those of
        its submodules that are not 0.  In bytes, if torch's are.
    fsdp_memory_stats: by (function, number of the call), the figures of FSDP2's tracker:
        its peak by device and kind of memory, and the same by module and state, in bytes.
    rank: of this process.  module: what is profiled.  memprof_log_dir: where files go.
    fsdp_mem_tracker: torch's tracker.  saved_tensors_funcs: the two functions under
    which collected calls run.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.memory_stats: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.fsdp_memory_stats: dict[tuple[str, int], dict[str, Any]] = {}
        self.rank: int = config.rank()
        self.module: Any = None
        self.memprof_log_dir: Path | None = None
        self.fsdp_mem_tracker: Any = None
        self.saved_tensors_funcs: list[Callable] = []
        self._state = MemProfInternalState()
        self._history: MemorySnapshot | None = None
        self._calls = threading.local()
        self._lock = threading.RLock()
        self._tracking = threading.Lock()
        self._failed: set[str] = set()
        self._dumped = 0  # number of figures at the last dump

    # The profiler of a copied model, or in another process, begins anew.

    def __getstate__(self) -> dict[str, Any]:
        self._state.copied = True
        return {
            "module": self.module,
            "saved_tensors_funcs": self.saved_tensors_funcs,
            "functions": self._state.base_collect_func_set,
            "hooks": self._state.configured_hooks,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()
        self.module = state["module"]
        self.saved_tensors_funcs = state["saved_tensors_funcs"]
        self._state.curr_pid = os.getpid()
        self._state.base_collect_func_set = state["functions"]
        self._state.configured_hooks = state["hooks"]

    @property
    def memprofiler_cfg(self) -> MemProfilerCfg:
        """The profiled module's configuration."""
        return self.module.memprofiler_cfg

    @property
    def schedule(self) -> MemProfilerSchedule:
        """The calls to collect."""
        return self.memprofiler_cfg.schedule

    def connect(self, obj_ref: Any) -> None:
        """Profiles OBJ_REF, a torch.nn.Module with a memprofiler_cfg, whose functions
        are resolved here; begins to record, if cuda_allocator_history asks for it.

        Raises MisconfigurationException for an unknown function.
        """
        self.module = obj_ref
        cfg = self.memprofiler_cfg
        if cfg.enabled and cfg.schedule.max_iter is None:
            # Enabled after it was made.
            cfg._settle()
        if cfg.enable_saved_tensors_hooks:
            self.saved_tensors_funcs = [resolve(f) for f in cfg.saved_tensors_funcs]
            if len(self.saved_tensors_funcs) != 2:
                raise misconfiguration(
                    "saved_tensors_funcs must be two functions, the one that packs and "
                    f"the one that unpacks, not {cfg.saved_tensors_funcs!r}"
                )
        hooks = cfg.memory_hooks
        funcs = cfg.collect_funcs
        self._state.curr_pid = os.getpid()
        self._state.configured_hooks = {
            each.name: [safe(resolve(f)) for f in getattr(hooks, each.name)]
            for each in fields(hooks)
        }
        self._state.base_collect_func_set = {
            *funcs.cuda_allocator_history,
            *funcs.cuda,
            *funcs.cpu,
        }
        self._start_history()
        upload.at_end(functools.partial(_at_end, weakref.ref(self)))

    # Failures beside the training.

    @contextlib.contextmanager
    def _part(self, name, remedy):
        """A part that is left out once it has failed; yields whether it has not yet."""
        try:
            yield name not in self._failed
        except Exception as error:
            if name not in self._failed:
                self._failed.add(name)
                tell(
                    f"MemProfiler goes on without {name}: {type(error).__name__}: "
                    f"{error}; {remedy}"
                )

    # Recordings.

    def _history_funcs(self):
        cfg = self.memprofiler_cfg
        wanted = cfg.cuda_allocator_history
        return cfg.collect_funcs.cuda_allocator_history if wanted else set()

    def _start_history(self):
        """Begins to record, unless it already does, or nothing more would be written.
        """
        if self._history is not None:
            return
        if self._history_funcs().issubset(self._state.done_prof_funcs):
            return
        with self._part("recordings", "cuda_allocator_history=False leaves them out"):
            from memlab._record.memory_snapshot import MemorySnapshot

            self._history = MemorySnapshot(source="cuda").start()

    def _stop_history(self):
        history, self._history = self._history, None
        if history is not None:
            with self._part("recordings", "those of earlier calls are written"):
                history.stop()

    def cuda_allocator_history_snap(self, snap_key: tuple | str) -> None:
        """Writes the recording to cuda_alloc_rank_<key>.pickle, a pickle that torch's
        viewer reads too.

        snap_key: from gen_snap_keys(), or joined by dots.  Raises OSError, and
        memlab.Error if memory cannot be read.
        """
        path = self._folder() / f"cuda_alloc_rank_{_joined(snap_key)}.pickle"
        if self._history is None:
            from memlab._record.history import dump_snapshot

            dump_snapshot(str(path))
        else:
            self._history.save(path)

    # Calls.

    def done(self, iter_idx: int) -> bool:
        """Whether the call ITER_IDX is after those that are collected."""
        last = self.schedule.max_iter
        return last is not None and iter_idx > last

    def _own_calls(self):
        try:
            return self._calls.open
        except AttributeError:
            self._calls.open = []
            return self._calls.open

    def _call(self, name):
        """The innermost call of NAME in this thread, or None."""
        return next((c for c in reversed(self._own_calls()) if c.name == name), None)

    def gen_snap_keys(
        self, fn_name: str, iter_ctx: str, iter_idx: int | None = None
    ) -> tuple[int, SnapKey]:
        """The number of a call of FN_NAME, and its key (rank, name, number, context).

        iter_idx: the number; None: that of this thread's current call, or else of the
        latest.
        """
        if iter_idx is None:
            call = self._call(fn_name)
            if call is not None and call.number is not None:
                iter_idx = call.number
            else:
                iter_idx = self._state.snap_indices.get((fn_name, iter_ctx), 0)
        return iter_idx, (self.rank, fn_name, iter_idx, iter_ctx)

    def update_collect_state(
        self, fn_name: str, iter_ctx: str, iter_idx: int | None = None
    ) -> None:
        """Counts the current call of FN_NAME, once each for ITER_CTX "start" and "end".

        iter_idx: its number; None: one more than the last.  Without a context, a start
        after an end begins another call.
        """
        self._begin(self._call(fn_name), fn_name, iter_ctx, iter_idx)

    def _begin(self, call, name, context, number=None):
        """The call of NAME that CONTEXT belongs to: CALL, if that continues."""
        anew = call is None or (
            not call.managed and "end" in call.begun and context == "start"
        )
        if anew:
            calls = self._own_calls()
            if call is not None:
                calls.remove(call)
                self._end_count(call)
            call = _Call(name, managed=False)
            calls.append(call)
        if context in call.begun:
            return call
        call.begun.add(context)
        key = (name, context)
        state = self._state
        with self._lock:
            for each in _CONTEXTS:
                state.can_collect.setdefault((name, each), True)
                state.snap_indices.setdefault((name, each), 0)
            if state.can_collect[key]:
                state.snap_indices[key] += 1
                # An end has its start's number, if there was a start.
                if number is not None:
                    call.number = number
                elif context == "start" or "start" not in call.begun:
                    call.number = state.snap_indices[key]
        return call

    def snap(self, fn_name: str, iter_ctx: str, reset_mem_hooks: bool = False) -> None:
        """Collects figures of the current call of FN_NAME, if it is to be collected; a
        later call ends the profiling of FN_NAME.

        iter_ctx: "start" or "end".  reset_mem_hooks: whether to reset the hooks then.
        """
        call = self._call(fn_name)
        if call is not None:
            self._snap(call, iter_ctx, reset_mem_hooks)

    def _snap(self, call, context, reset):
        if call.number is None:
            self._end_count(call)
            return
        if context == "start" and self._in_range(call):
            self._begin_count(call)
        if call.collecting or self._in_range(call):
            self._collect(call, context, reset)
        elif self.done(call.number):
            self.teardown_prof(call.name, context)
        if context == "end":
            self._end_count(call)

    def _in_range(self, call):
        return (
            call is not None
            and call.number is not None
            and call.number > self.schedule.warmup_iters
            and not self.done(call.number)
        )

    def _begin_count(self, call):
        if call.collecting:
            return
        call.collecting = True
        with self._lock:
            self._state.collecting += 1
        with self._part(
            "memory hooks", "enable_memory_hooks=False leaves them out"
        ) as on:
            if on and self.memprofiler_cfg.enable_memory_hooks:
                self.add_memprofiler_hooks()
            if on:
                call.count = npp_hooks.Count(self.module)
                npp_hooks.begin(call.count)

    def _end_count(self, call):
        if call.count is not None:
            npp_hooks.end(call.count)
            call.count = None
        if call.collecting:
            call.collecting = False
            with self._lock:
                self._state.collecting -= 1
        if self._history is not None and not self._state.collecting:
            # There may be nothing left to write.
            if self._history_funcs().issubset(self._state.done_prof_funcs):
                self._stop_history()

    def _collect(self, call, context, reset):
        cfg = self.memprofiler_cfg
        funcs = cfg.collect_funcs
        key = _joined((self.rank, call.name, call.number, context))
        stats = {}
        with self._part(
            "memory hooks", "enable_memory_hooks=False leaves them out"
        ) as on:
            if on and cfg.enable_memory_hooks:
                stats.update(self._hook_figures(call, context))
        with self._part(
            "host memory", "collect_funcs.cpu without it leaves it out"
        ) as on:
            if on and call.name in funcs.cpu:
                stats["rss"], stats["vms"] = npp_hooks.host_memory()
        with self._part(
            "statistics of CUDA", "collect_funcs.cuda leaves them out"
        ) as on:
            if on and call.name in funcs.cuda:
                stats.update(outcome.cuda_figures())
        with self._lock:
            self.memory_stats[key].update(stats)
        with self._part(
            "recordings", "look at save_dir, or cuda_allocator_history"
        ) as on:
            if on and call.name in self._history_funcs():
                self.cuda_allocator_history_snap(key)
        with self._part(
            "memory hooks", "enable_memory_hooks=False leaves them out"
        ) as on:
            if on and reset and cfg.enable_memory_hooks:
                self.exec_reset_state_hooks()

    def _hook_figures(self, call, context):
        """The attributes that hooks set: all of the module's, and the submodules' that
        are not 0.  Inside another call, only those of this call's hooks.
        """
        if call.count is not None and call.count.error is not None:
            raise call.count.error
        names = self.memprofiler_cfg.save_hook_attrs
        figures = {name: getattr(self.module, name, None) for name in names}
        # Other hooks may set the same attributes; theirs are on the modules.
        own_hooks = npp_hooks._hook_npp_post_forward in self._state.hook_handles
        ours = call.count.whole() if call.count is not None and own_hooks else {}
        if context == "start":
            ours = dict.fromkeys(ours, 0)
            own = {}
        else:
            own = call.count.figures if call.count is not None else {}
        if own_hooks:
            # A trainer's step calls the submodules, not the module itself.
            root = own.get(self.module, ours)
            figures.update((name, root[name]) for name in names if name in root)
        for name, module in getattr(self.module, "named_modules", tuple)():
            if name and context == "end":
                for attribute in names:
                    value = own.get(module, {}).get(attribute)
                    if value is None and attribute not in ours:
                        value = vars(module).get(attribute)
                    if value:
                        figures[f"modules.{name}.{attribute}"] = value
        return figures

    def teardown_prof(self, fn_name: str, iter_ctx: str) -> None:
        """Ends the profiling of FN_NAME at ITER_CTX; after both, it is done.

        Once the collected functions of retain_hooks_for_funcs are done, the hooks are
        removed and disabled.
        """
        state = self._state
        with self._lock:
            state.can_collect[(fn_name, iter_ctx)] = False
            if any(state.can_collect.get((fn_name, each), True) for each in _CONTEXTS):
                return
            if fn_name in state.done_prof_funcs:
                return
            state.done_prof_funcs.append(fn_name)
        profiled = state.base_collect_func_set or set()
        cfg = self.memprofiler_cfg
        if cfg._hooks_wait_for(profiled).issubset(state.done_prof_funcs):
            with self._part("removing its hooks", "they do nothing any more"):
                self.remove_memprofiler_hooks()
            cfg.enable_memory_hooks = False
        if profiled.issubset(state.done_prof_funcs):
            # The training may end without notice.
            self._dump_quietly()

    # Contexts.

    @contextlib.contextmanager
    def memprofile_meta_ctx(self, fn_name: str) -> Iterator[None]:
        """One call of FN_NAME, whatever contexts it contains."""
        call = _Call(fn_name, managed=True)
        calls = self._own_calls()
        calls.append(call)
        try:
            yield
        finally:
            if call in calls:
                calls.remove(call)
            with self._part("figures of calls", "enabled=False leaves them all out"):
                self._end_count(call)

    @contextlib.contextmanager
    def memprofile_snap_ctx(self, fn_name: str) -> Iterator[None]:
        """Collects figures at the start and the end of the call of FN_NAME, and runs it
        under saved_tensors_funcs, if it is to be collected.
        """
        if fn_name not in (self._state.base_collect_func_set or ()):
            # Collected for FSDP only, or not at all.
            yield
            return
        call = None
        raised = True
        with self._part("figures of calls", "enabled=False leaves them all out"):
            call = self._begin(self._call(fn_name), fn_name, "start")
            self._snap(call, "start", False)
        try:
            with contextlib.ExitStack() as stack:
                self._enter_saved_tensors(stack, call)
                yield
            raised = False
        finally:
            with self._part("figures of calls", "enabled=False leaves them all out"):
                self._begin(call, fn_name, "end")
                collected = call.collecting
                self._snap(call, "end", True)
                if raised and collected:
                    # The training may end by it.
                    self._dump_quietly()

    @contextlib.contextmanager
    def memprofile_ctx(
        self, fn_name: str, track_inputs_target: tuple | None = None
    ) -> Iterator[None]:
        """Profiles its block as one call of FN_NAME: memprofile_meta_ctx(), and in it
        memprofile_fsdp_ctx() and memprofile_snap_ctx().

        track_inputs_target: as for memprofile_fsdp_ctx().
        """
        with (
            self.memprofile_meta_ctx(fn_name),
            self.memprofile_fsdp_ctx(fn_name, track_inputs_target),
            self.memprofile_snap_ctx(fn_name),
        ):
            yield

    @staticmethod
    def memprofilable(func: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorates a method whose calls are profiled if its object has an enabled
        memprofiler.  The tensors among its arguments are FSDP's inputs.  Its calls by
        super() are part of its call.
        """
        name = func.__name__

        @functools.wraps(func)
        def profiled(self, *args, **kwargs):
            profiler = getattr(self, "memprofiler", None)
            if not profiler or not profiler._wants(name):
                return func(self, *args, **kwargs)
            call = profiler._call(name)
            if call is not None and call.function not in (None, func):
                # A call of super() within the same call.
                return func(self, *args, **kwargs)
            with profiler.memprofile_ctx(name, (args, kwargs)):
                profiler._call(name).function = func
                return func(self, *args, **kwargs)

        return profiled

    def _wants(self, name):
        return (
            self.module is not None
            and self.memprofiler_cfg.enabled
            and name not in self._state.done_prof_funcs
            and not compiled.in_one_graph()
        )

    # The end.

    def _finish(self, last=False):
        """Writes the files, removes everything from modules, and ends the recording.
        LAST: no call follows; what was not collected is told.
        """
        self._dump_quietly()
        with self._part("removing its hooks", "they do nothing any more"):
            self.remove_memprofiler_hooks()
        self._stop_history()
        if last and self.memprofiler_cfg.enabled:
            with self._part("what was not collected", "look at its files"):
                text = outcome.not_collected(self.memprofiler_cfg, self._state)
                if text and "nothing" not in self._failed:
                    self._failed.add("nothing")
                    tell(text)


def _at_end(reference):
    """The end of the program, for a profiler whose training told none."""
    profiler = reference()
    if profiler is None or profiler._state.curr_pid != os.getpid():
        return
    state = profiler._state
    if state.snap_indices or not state.copied:
        profiler._finish(last=True)


def _joined(key):
    return key if isinstance(key, str) else ".".join(map(str, key))


def memprofilable(func: Callable[_P, _R]) -> Callable[_P, _R]:
    """MemProfiler.memprofilable."""
    return MemProfiler.memprofilable(func)
