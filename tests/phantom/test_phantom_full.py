"""A full GPU on which a library finds no room: memlab says so, and not that the phantom's
values are to blame or that memory is tight."""

import os
import subprocess
import sys

import pytest
from on_phantom import installed, needs_torch

import memlab
from memlab._cli import main
from memlab._run import outside

# All but 28 MiB of the GPU is taken before cuBLAS wants its 66 MiB.  Its workspace, which torch
# allocates, has room.
_ENVIRONMENT = {"MEMLAB_PHANTOM_MEMORY": "8GiB", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
_FILLS = """
import torch
held = torch.empty(1 << 20, device="cuda")
free, _ = torch.cuda.mem_get_info()
most = torch.empty((free // 2**21 - 15) * 2**21, dtype=torch.uint8, device="cuda")
{then}
small = torch.empty(8, 8, device="cuda")
small @ small
"""
_PLACE = "memlab: out of memory outside torch's allocator: cuBLAS found no room."


def end(folder, then, *words):
    """What a program that fills the GPU, THEN does that, said behind its traceback."""
    (folder / "script.py").write_text(_FILLS.format(then=then))
    return ended(folder, *words)


def ended(folder, *words):
    """What script.py in FOLDER said behind its traceback."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "script.py"],
        env={**os.environ, "PYTHONPATH": installed(folder), **_ENVIRONMENT},
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1 and "CUBLAS_STATUS_ALLOC_FAILED" in done.stderr, done.stderr
    return " ".join(done.stderr.partition("`cublasCreate(handle)`\n")[2].split())


@needs_torch
def test_the_verdict_is_that_a_library_found_no_room(tmp_path):
    said = end(tmp_path, "", "memlab", "run", "--phantom", "--out", "out")
    assert said.startswith(_PLACE) and "not real" not in said
    verdict = said.partition("Verdict: ")[2]
    assert verdict.startswith("Out of memory outside torch's allocator: cuBLAS found no room.")
    assert "of cuda:0's 8.00 GiB, and 28.0 MiB were free. The batch must be smaller" in verdict
    assert "all that torch reserved is in use" in verdict and "Tight" not in said
    told_later(tmp_path / "out", verdict)


def told_later(folder, verdict):
    """The recording alone has the sentences that VERDICT begins with, for a gate too."""
    recording = memlab.open(folder / "rank0.mlab")
    first = recording.verdict(0)["findings"][0]
    assert first["kind"] == "no_room_outside_torch"
    assert (first["bytes"], first["of_bytes"]) == (28 << 20, 8 << 30)
    assert verdict.startswith(first["text"]) and "smaller" in first["text"]
    assert first["text"] in " ".join(str(memlab.explain(recording)).split())
    assert main.main(["report", str(folder), "--fail-on", "oom"]) == 3


_CHILD = """
import multiprocessing, sys

def fill():
    exec(open("fills.py").read())

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=fill)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@needs_torch
def test_a_child_of_multiprocessing_is_told(tmp_path):
    (tmp_path / "fills.py").write_text(_FILLS.format(then=""))
    (tmp_path / "script.py").write_text(_CHILD)
    said = ended(tmp_path, "memlab", "run", "--phantom", "--out", "out")
    verdict = said.partition("Verdict: ")[2]
    assert verdict.startswith("Out of memory outside torch's allocator: cuBLAS found no room.")
    told_later(tmp_path / "out", verdict)


@needs_torch
def test_what_is_reserved_and_unused_is_told(tmp_path):
    said = end(tmp_path, "del most", "memlab", "run", "--phantom", "--out", "out")
    verdict = said.partition("Verdict: ")[2]
    assert "or what torch reserves, of which" in verdict
    assert "torch.cuda.set_per_process_memory_fraction() below 0.9" in verdict


@needs_torch
def test_without_a_recording_it_is_told_too(tmp_path):
    said = end(tmp_path, "", "memlab.phantom")
    assert said.startswith(_PLACE) and "The batch must be smaller" in said
    assert "not real" not in said


@needs_torch
def test_a_gpu_whose_context_is_lost_is_left_out(tmp_path):
    lost = """
def lost(*_):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
torch.cuda.mem_get_info = lost
"""
    said = end(tmp_path, lost, "memlab", "run", "--phantom", "--out", "out")
    verdict = said.partition("Verdict: ")[2]
    assert verdict.startswith("Out of memory outside torch's allocator: cuBLAS found no room.")
    assert "Free memory of other processes, which nvidia-smi names." in " ".join(verdict.split())


class OutOfMemoryError(RuntimeError):
    """As torch's allocator raises it."""


@pytest.mark.parametrize(
    "error, is_so",
    [
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("NCCL error: Cuda failure 2 'out of memory'"), True),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), False),
        (RuntimeError("the loader's process is out of memory"), False),
        (ValueError("CUDA error: out of memory"), False),
        (None, False),
    ],
)
def test_which_errors_are_of_memory_outside_the_allocator(error, is_so):
    assert outside.ran_out(error) is is_so


def test_a_cause_counts_and_an_out_of_memory_of_torch_before_it_wins():
    cause = RuntimeError("CUDA error: out of memory")
    assert outside.ran_out(_raised_from(ValueError("no step"), cause))
    assert not outside.ran_out(_raised_from(OutOfMemoryError("CUDA out of memory"), cause))


def _raised_from(error, cause):
    error.__cause__ = cause
    return error
