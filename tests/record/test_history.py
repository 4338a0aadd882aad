"""memlab.record_memory_history, snapshot and dump_snapshot against torch's own.

Each test is a program of tests/isolated that runs both recorders in one process on a
CUDA device, and fails where they differ.
"""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from amounts import amount, seed
from cuda_here import KEEPS_WORKSPACES
from preload import shared_library

import memlab

PROGRAMS = Path(__file__).resolve().parents[1] / "isolated"
HELPERS = PROGRAMS.parent / "helpers"

CONFIGURATIONS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20,garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4",
]


@pytest.mark.cuda
@pytest.mark.parametrize("index", range(len(CONFIGURATIONS)), ids=CONFIGURATIONS)
def test_training_is_recorded_as_torch_records_it(phantom_run, index):
    """Forward, backward, optimizer, streams, pools, OOM, empty_cache, two devices."""
    phantom_run(
        PROGRAMS / "training.py",
        ("torch", "memlab")[index % 2],
        env={
            "PYTORCH_CUDA_ALLOC_CONF": CONFIGURATIONS[index],
            "MEMLAB_PHANTOM_DEVICES": "2",
        },
    )


@pytest.mark.cuda
@pytest.mark.nightly
def test_each_enabled_and_context_keeps_what_torch_keeps(phantom_run):
    programs = amount("CONTEXTS", 5)
    phantom_run(
        PROGRAMS / "contexts.py", seed("CONTEXTS", programs > 5), programs, timeout=3600
    )


@pytest.mark.cuda
def test_functions_behave_as_torchs(phantom_run):
    """Errors, max_entries, device, OOM, record_stream, metadata, dump, C++ frames."""
    phantom_run(PROGRAMS / "history.py", env={"MEMLAB_PHANTOM_DEVICES": "2"})


@pytest.mark.cuda
def test_further_arguments_and_names_are_torchs(phantom_run):
    phantom_run(PROGRAMS / "history_arguments.py")


@pytest.mark.cuda
def test_recording_may_begin_before_cuda(phantom_run):
    phantom_run(PROGRAMS / "early.py")


@pytest.mark.cuda
def test_recording_begins_where_torchscript_is_the_first_to_use_cuda(phantom_run):
    phantom_run(PROGRAMS / "script_first.py")


@pytest.mark.cuda
def test_a_stack_deeper_than_is_kept_has_both_ends(phantom_run):
    phantom_run(PROGRAMS / "deep.py")


@pytest.mark.cuda
def test_torch_is_not_asked_for_frames_of_torchscript_without_it(
    phantom_run, device_environment, tmp_path
):
    library = shared_library(HELPERS / "callstack.c", tmp_path / "callstack.so")
    preloaded = f"{library} {device_environment.get('LD_PRELOAD', '')}"
    phantom_run(PROGRAMS / "no_torchscript.py", env={"LD_PRELOAD": preloaded})


@pytest.mark.cuda
def test_torchscript_is_recorded_as_torch_records_it(phantom_run):
    phantom_run(PROGRAMS / "torchscript.py", env=KEEPS_WORKSPACES)


@pytest.mark.cuda
def test_compiled_programs_are_recorded_as_torch_records_them(phantom_run, tmp_path):
    pytest.importorskip("triton", reason="torch.compile needs triton")
    phantom_run(
        PROGRAMS / "compiled.py",
        env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torchinductor_test")},
    )


def test_without_a_device_they_raise_as_torchs_do(torch, tmp_path):
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [sys.executable, str(PROGRAMS / "no_device.py")],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=300,
    )


def test_signatures_are_torchs(torch):
    """Same names, order and defaults, so that a script changes one import."""
    theirs = inspect.signature(torch.cuda.memory._record_memory_history)
    ours = inspect.signature(memlab._record_memory_history)
    assert list(ours.parameters)[:5] == list(theirs.parameters)[:5]
    for name in set(theirs.parameters) & set(ours.parameters):
        assert ours.parameters[name].default == theirs.parameters[name].default, name
    public = inspect.signature(memlab.record_memory_history)
    assert list(public.parameters) == list(ours.parameters)
    changed = [
        name
        for name in public.parameters
        if public.parameters[name].default != ours.parameters[name].default
    ]
    assert changed == ["stacks"], "the dear default is the only one that differs"
    names = "_dump_snapshot", "_snapshot", "_save_segment_usage", "_save_memory_usage"
    for name in names:
        theirs = inspect.signature(getattr(torch.cuda.memory, name)).parameters
        ours = inspect.signature(getattr(memlab, name)).parameters
        assert list(ours)[: len(theirs)] == list(theirs)
        assert all(ours[n].default == theirs[n].default for n in theirs)
