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

import memlab

PROGRAMS = Path(__file__).resolve().parent / "isolated"

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
def test_each_enabled_and_context_keeps_what_torch_keeps(phantom_run):
    phantom_run(PROGRAMS / "contexts.py")


@pytest.mark.cuda
def test_functions_behave_as_torchs(phantom_run):
    """Errors, max_entries, device, OOM, record_stream, metadata, dump, C++ frames."""
    phantom_run(PROGRAMS / "history.py", env={"MEMLAB_PHANTOM_DEVICES": "2"})


@pytest.mark.cuda
def test_recording_may_begin_before_cuda(phantom_run):
    phantom_run(PROGRAMS / "early.py")


def test_without_a_device_the_cpu_is_recorded(torch, tmp_path):
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
    name = "filename"
    assert (
        inspect.signature(memlab._dump_snapshot).parameters[name].default
        == inspect.signature(torch.cuda.memory._dump_snapshot).parameters[name].default
    )
