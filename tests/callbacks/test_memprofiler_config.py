"""The configuration of MemProfiler: fields, defaults, and what it refuses."""

import dataclasses
import pickle
import sys
import types
import typing
import warnings

import pytest

from memlab._native import sources
from memlab.callbacks import npp_hooks
from memlab.callbacks._memprofiler import profiler_hooks
from memlab.callbacks._memprofiler.config import (
    MemProfilerCfg,
    MemProfilerFuncs,
    MemProfilerHooks,
    MemProfilerSchedule,
    misconfiguration,
    resolve,
)

ATTRIBUTES = [
    "rss_pre_forward",
    "rss_post_forward",
    "rss_diff",
    "npp_pre_forward",
    "npp_post_forward",
    "npp_diff",
]


def test_fields_and_defaults():
    cfg = MemProfilerCfg()
    hooks = "memlab.callbacks.npp_hooks._"
    assert dataclasses.asdict(cfg) == {
        "enabled": False,
        "collect_funcs": {
            "default": {"training_step"},
            "cpu": set(),
            "cuda": set(),
            "cuda_allocator_history": set(),
            "fsdp": set(),
        },
        "cuda_allocator_history": False,
        "track_fsdp_mem": False,
        "fsdp_mem_track_module_depth": 2,
        "fsdp_mem_tracker_tabulate": False,
        "fsdp_mem_tracker_units": "MiB",
        "fsdp_mem_tracker_root_module": "",
        "dump_memorystats_pickle": False,
        "dump_memorystats_yaml": True,
        "schedule": {"warmup_iters": 1, "max_iter": None},
        "save_dir": None,
        "enable_memory_hooks": True,
        "enable_saved_tensors_hooks": True,
        "memory_hooks": {
            "pre_forward_hooks": [f"{hooks}hook_npp_pre_forward"],
            "post_forward_hooks": [f"{hooks}hook_npp_post_forward"],
            "reset_state_hooks": [f"{hooks}reset_memory_hooks_state"],
        },
        "saved_tensors_funcs": [f"{hooks}npp_hook", "identity_lambda"],
        "save_hook_attrs": ATTRIBUTES,
        "retain_hooks_for_funcs": {"training_step"},
    }
    assert pickle.loads(pickle.dumps(cfg)) == cfg
    # Command lines are made of these.
    assert typing.get_type_hints(MemProfilerCfg)["collect_funcs"] is MemProfilerFuncs
    typing.get_type_hints(MemProfilerHooks)
    assert "memprofiler_cfg" in typing.get_type_hints(
        profiler_hooks.ProfilerHooksMixin.__init__
    )


def test_enabled_completes_it(torch, monkeypatch):
    monkeypatch.setattr(sources, "default", lambda: "cuda")
    funcs = MemProfilerFuncs(default={"a"}, cpu=["b"])
    cfg = MemProfilerCfg(enabled=True, collect_funcs=funcs)
    assert cfg.schedule.max_iter == 2
    assert cfg.collect_funcs.cpu == {"a", "b"}
    assert cfg.collect_funcs.cuda == cfg.collect_funcs.fsdp == {"a"}
    assert cfg.retain_hooks_for_funcs == {"training_step"}


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({}, False),
        ({"cuda_allocator_history": True}, True),
        ({"collect_funcs": {"cuda": ["f"]}}, True),
        ({"collect_funcs": {"cuda_allocator_history": "f"}}, True),
    ],
)
def test_without_a_gpu_what_is_of_cuda_is_left_out(torch, monkeypatch, options, asks):
    monkeypatch.setattr(sources, "default", lambda: "cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cfg = MemProfilerCfg(enabled=True, **options)
    said = (
        "Disabling CUDA memory profiling functionality since no CUDA device detected."
    )
    assert [str(w.message) for w in caught] == [said] * asks
    assert not cfg.cuda_allocator_history
    assert cfg.collect_funcs.cuda == cfg.collect_funcs.cuda_allocator_history == set()
    assert cfg.collect_funcs.cpu == {"training_step"}


def test_no_hooks_are_warned_of(torch):
    with pytest.warns(UserWarning, match="does not have any specified"):
        MemProfilerCfg(enabled=True, memory_hooks=MemProfilerHooks([], [], []))


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (
            lambda: MemProfilerCfg(fsdp_mem_tracker_units="MB"),
            ValueError,
            "B, KiB, MiB, GiB",
        ),
        (lambda: MemProfilerCfg(fsdp_mem_track_module_depth=0), ValueError, "_depth"),
        (
            lambda: MemProfilerCfg(schedule={"warmup": 1}),
            ValueError,
            "schedule has no warmup",
        ),
        (lambda: MemProfilerCfg(collect_funcs=3), TypeError, "collect_funcs"),
        (lambda: MemProfilerFuncs(cpu=[1]), TypeError, "cpu"),
        (lambda: MemProfilerSchedule(-1), ValueError, "warmup_iters"),
        (lambda: MemProfilerSchedule(max_iter="2"), TypeError, "max_iter"),
    ],
)
def test_what_makes_no_sense(make, error, named):
    with pytest.raises(error, match=named):
        make()


def test_functions_by_name():
    assert resolve(len) is len
    assert resolve("identity_lambda")("x") == "x"
    assert resolve("memlab.callbacks.npp_hooks._npp_hook") is npp_hooks._npp_hook
    assert resolve("fts_examples.profiling.npp_hooks._npp_hook") is npp_hooks._npp_hook
    for name in ("memlab.callbacks.npp_hooks.none", "no_module_here.f", "f", ""):
        with pytest.raises(
            ValueError, match="Unable to import and resolve specified function"
        ):
            resolve(name)
    with pytest.raises(
        ValueError, match="Custom function version from module sys is not call"
    ):
        resolve("sys.version")


def test_misconfiguration_is_that_of_every_lightning(monkeypatch):
    assert type(misconfiguration("x")).__name__ == "MisconfigurationException"
    fakes = []
    for package in "lightning.fabric", "lightning_fabric":
        fake = types.ModuleType(package)
        fake.MisconfigurationException = type(
            "MisconfigurationException", (Exception,), {}
        )
        fakes.append(fake.MisconfigurationException)
        monkeypatch.setitem(sys.modules, f"{package}.utilities.exceptions", fake)
    error = misconfiguration("what helps")
    assert isinstance(error, ValueError) and str(error) == "what helps"
    assert all(isinstance(error, fake) for fake in fakes)
