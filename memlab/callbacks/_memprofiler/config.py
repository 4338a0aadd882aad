"""MemProfiler's configuration: its dataclasses, their defaults and checks.

Their annotations can be evaluated, for tools that make command lines of them.  Values
from YAML may be lists instead of sets, and dicts instead of the inner dataclasses.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path

from memlab._files import names
from memlab._native import sources
from memlab.callbacks._memprofiler.yaml import to_safe_yaml

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_OURS = "memlab.callbacks.npp_hooks."
# The names of the same hooks in fts_examples' configurations.
_THEIRS = "fts_examples.profiling.npp_hooks."


@functools.cache
def _misconfiguration(bases):
    return type(
        "MisconfigurationException", (*bases, ValueError), {"__module__": "memlab"}
    )


def misconfiguration(text: str) -> Exception:
    """An exception with TEXT that is a ValueError, and the MisconfigurationException of
    each imported Lightning.
    """
    modules = (
        "lightning.fabric.utilities.exceptions",
        "lightning_fabric.utilities.exceptions",
    )
    bases = tuple(
        sys.modules[name].MisconfigurationException
        for name in modules
        if name in sys.modules
    )
    return _misconfiguration(bases)(text)


def rank() -> int:
    """This process's rank, from torch.distributed or launchers' environment variables,
    as in Lightning; 0 if alone.
    """
    found = names.ranks()["rank"]
    if found or "RANK" in os.environ:
        return found
    for name in ("LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"):
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return 0


def resolve(name: str | Callable) -> Callable:
    """The function NAME, which is one, a dotted path, or identity_lambda.

    Raises MisconfigurationException if there is none.
    """
    if callable(name):
        return name
    if name == "identity_lambda":
        return identity
    text = str(name)
    if text.startswith(_THEIRS):
        text = _OURS + text[len(_THEIRS) :]
    module, _, attribute = text.rpartition(".")
    if not module or not attribute:
        raise misconfiguration(
            f"Unable to import and resolve specified function {text!r}: give a function, or "
            "its dotted path, as 'package.module.function'"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (AttributeError, ImportError, ValueError) as error:
        raise misconfiguration(
            f"Unable to import and resolve specified function {attribute} from module "
            f"{module}: {error}"
        ) from None
    if not callable(found):
        raise misconfiguration(
            f"Custom function {attribute} from module {module} is not callable!"
        )
    return found


def identity(x: object) -> object:
    """Returns X; a module's function, so that its holders can be pickled."""
    return x


def _as_set(value, name):
    if isinstance(value, str):
        return {value}
    try:
        found = set(value or ())
    except TypeError:
        found = {None}
    if not all(isinstance(item, str) for item in found):
        raise TypeError(f"{name} must be names of functions, not {value!r}")
    return found


def _as_list(value):
    return [value] if isinstance(value, str) or callable(value) else list(value or ())


def _as(kind, value, name):
    if isinstance(value, kind):
        return value
    if value is None:
        return kind()
    if isinstance(value, dict):
        unknown = set(value) - {f.name for f in fields(kind)}
        if unknown:
            raise ValueError(f"{name} has no {', '.join(sorted(map(str, unknown)))}")
        return kind(**value)
    raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def _check_int(value, least, name):
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")


def _retained():
    return {"training_step"}


@dataclass
class MemProfilerHooks:
    """The functions that MemProfiler calls at forward passes, each a callable or a
    dotted path.

    pre_forward_hooks, post_forward_hooks: registered on every module, as torch's
    forward pre-hooks and forward hooks.  reset_state_hooks: called with the profiled
    module and save_hook_attrs before the first profiled call, and after each.
    """

    pre_forward_hooks: list[str | Callable] = field(
        default_factory=lambda: [f"{_OURS}_hook_npp_pre_forward"]
    )
    post_forward_hooks: list[str | Callable] = field(
        default_factory=lambda: [f"{_OURS}_hook_npp_post_forward"]
    )
    reset_state_hooks: list[str | Callable] = field(
        default_factory=lambda: [f"{_OURS}_reset_memory_hooks_state"]
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            setattr(self, each.name, _as_list(getattr(self, each.name)))


@dataclass
class MemProfilerFuncs:
    """Names of the memprofilable functions for which each kind of figures is collected.

    default: all kinds.  cpu: host memory.  cuda: the allocator's statistics.
    cuda_allocator_history: recordings.  fsdp: the tracker of FSDP's memory.  Raises
    TypeError unless each is a collection of names.
    """

    default: set[str] = field(default_factory=lambda: {"training_step"})
    cpu: set[str] = field(default_factory=set)
    cuda: set[str] = field(default_factory=set)
    cuda_allocator_history: set[str] = field(default_factory=set)
    fsdp: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for each in fields(self):
            setattr(self, each.name, _as_set(getattr(self, each.name), each.name))


@dataclass
class MemProfilerSchedule:
    """The calls of each function for which figures are collected, counted from 1: those
    above warmup_iters, up to max_iter.

    warmup_iters: at least 0.  max_iter: None for one call.  Raises TypeError or
    ValueError for anything else.
    """

    warmup_iters: int = 1
    max_iter: int | None = None

    def __post_init__(self) -> None:
        _check_int(self.warmup_iters, 0, "warmup_iters")
        if self.max_iter is not None:
            _check_int(self.max_iter, 0, "max_iter")


_INNER = MemProfilerHooks, MemProfilerFuncs, MemProfilerSchedule


@dataclass
class MemProfilerCfg:
    """What MemProfiler collects, of which functions, when, and where it writes it.

    enabled: whether anything is collected.
    collect_funcs: the functions, by kind of figures.
    cuda_allocator_history: whether memlab records, and leaves a recording at the start
        and the end of each collected call.
    track_fsdp_mem: whether torch's tracker of FSDP2's memory runs in collected calls.
    fsdp_mem_track_module_depth: levels of modules in its reports, at least 1.
    fsdp_mem_tracker_tabulate: whether these are tables.
    fsdp_mem_tracker_units: their unit: "B", "KiB", "MiB" or "GiB".
    fsdp_mem_tracker_root_module: the name of the submodule that it tracks, to which
        fully_shard was applied; "" for the profiled module itself.
    dump_memorystats_pickle, dump_memorystats_yaml: which files have the figures.
    schedule: the calls that are collected.
    save_dir: the folder of all files; None for memprofiler in the trainer's log_dir.
    enable_memory_hooks: whether memory_hooks are called.
    enable_saved_tensors_hooks: whether collected calls run under saved_tensors_funcs,
        the two functions that torch.autograd.graph.saved_tensors_hooks takes.
        Functions that refuse such hooks, as torch.func's, need False.
    memory_hooks: functions to call beside forward passes.
    saved_tensors_funcs: callables, dotted paths, or "identity_lambda".
    save_hook_attrs: attributes that the hooks set on modules, and that are collected.
    retain_hooks_for_funcs: the hooks go once the functions among these that are
        collected are past max_iter; with the default, or where none of these is
        collected, once all that are collected are.

    Dicts, as from YAML, are accepted in place of the inner dataclasses.  Raises
    ValueError or TypeError for an invalid value.
    """

    enabled: bool = False
    collect_funcs: MemProfilerFuncs = field(default_factory=MemProfilerFuncs)
    cuda_allocator_history: bool = False
    track_fsdp_mem: bool = False
    fsdp_mem_track_module_depth: int = 2
    fsdp_mem_tracker_tabulate: bool = False
    fsdp_mem_tracker_units: str = "MiB"
    fsdp_mem_tracker_root_module: str = ""
    dump_memorystats_pickle: bool = False
    dump_memorystats_yaml: bool = True
    schedule: MemProfilerSchedule = field(default_factory=MemProfilerSchedule)
    save_dir: str | Path | None = None
    enable_memory_hooks: bool = True
    enable_saved_tensors_hooks: bool = True
    memory_hooks: MemProfilerHooks = field(default_factory=MemProfilerHooks)
    saved_tensors_funcs: list[str | Callable] = field(
        default_factory=lambda: [f"{_OURS}_npp_hook", "identity_lambda"]
    )
    save_hook_attrs: list[str] = field(
        default_factory=lambda: [
            "rss_pre_forward",
            "rss_post_forward",
            "rss_diff",
            "npp_pre_forward",
            "npp_post_forward",
            "npp_diff",
        ]
    )
    retain_hooks_for_funcs: set[str] = field(default_factory=_retained)

    def __post_init__(self) -> None:
        self.collect_funcs = _as(MemProfilerFuncs, self.collect_funcs, "collect_funcs")
        self.schedule = _as(MemProfilerSchedule, self.schedule, "schedule")
        self.memory_hooks = _as(MemProfilerHooks, self.memory_hooks, "memory_hooks")
        self.saved_tensors_funcs = _as_list(self.saved_tensors_funcs)
        self.save_hook_attrs = _as_list(self.save_hook_attrs)
        self.retain_hooks_for_funcs = _as_set(
            self.retain_hooks_for_funcs, "retain_hooks_for_funcs"
        )
        _check_int(self.fsdp_mem_track_module_depth, 1, "fsdp_mem_track_module_depth")
        if self.fsdp_mem_tracker_units not in UNITS:
            raise ValueError(
                f"fsdp_mem_tracker_units must be one of {', '.join(UNITS)}, not "
                f"{self.fsdp_mem_tracker_units!r}"
            )
        to_safe_yaml(MemProfilerCfg, *_INNER)
        if self.enabled:
            self._settle()

    def _hooks_wait_for(self, collected):
        """The names in COLLECTED whose ends end the hooks."""
        # Command lines pass all defaults, so the defaults mean nothing special.
        chosen = self.retain_hooks_for_funcs
        return (chosen & collected if chosen != _retained() else None) or collected

    def _settle(self):
        funcs = self.collect_funcs
        if self.schedule.max_iter is None:
            self.schedule.max_iter = self.schedule.warmup_iters + 1
        asked = (
            funcs.cuda or funcs.cuda_allocator_history or self.cuda_allocator_history
        )
        for each in fields(funcs):
            setattr(funcs, each.name, getattr(funcs, each.name) | funcs.default)
        # After torch.cuda.is_available(), no child could be forked for CUDA.
        if sources.default() != "cuda":
            funcs.cuda, funcs.cuda_allocator_history = set(), set()
            self.cuda_allocator_history = False
            if asked and rank() == 0:
                warnings.warn(
                    "Disabling CUDA memory profiling functionality since no CUDA "
                    "device detected.",
                    stacklevel=4,
                )
        hooks = self.memory_hooks
        if self.enable_memory_hooks and rank() == 0:
            if not any(getattr(hooks, each.name) for each in fields(hooks)):
                warnings.warn(
                    "MemProfilerCfg is configured to enable memory hooks but "
                    "MemProfilerHooks does not have any specified; give "
                    "enable_memory_hooks=False for none.",
                    stacklevel=4,
                )
