"""A setting of the allocator that holds cache is named in the verdict, with what to write."""

import pytest
from on_phantom import needs_torch
from on_phantom import run as run_on_phantom

from memlab._files import load
from memlab._report import verdict as words

pytestmark = [pytest.mark.cuda, pytest.mark.slow, needs_torch]

# Blocks above 64 MiB are not split: a request of 1500 MiB is not served by 3000 that are free.
PROGRAM = """
import sys, memlab, torch
with memlab.MemorySnapshot(source="cuda") as snapshot:
    large = torch.empty(3000 << 20, dtype=torch.uint8, device="cuda")
    del large
    small = torch.empty(1500 << 20, dtype=torch.uint8, device="cuda")
snapshot.save(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("conf", "setting", "write"),
    [
        (
            "max_split_size_mb:64,garbage_collection_threshold:0.9",
            "max_split_size_mb:64",
            "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.9",
        ),
        ("max_split_size_mb:64", "max_split_size_mb:64", "unset PYTORCH_CUDA_ALLOC_CONF"),
    ],
)
def test_the_setting_that_holds_cache(conf, setting, write, tmp_path):
    path = tmp_path / "run.pickle"
    done = run_on_phantom(
        PROGRAM, env={"PYTORCH_CUDA_ALLOC_CONF": conf}, arguments=[str(path)], gpu="rtx4090"
    )
    assert done.returncode == 0, done.stderr
    verdict = load.read_recording(path).verdict(0, trials=True)
    [held] = [f for f in verdict["findings"] if f["kind"] == "cache_held"]
    assert held["setting"] == setting
    # 4500 MiB were reserved; without the setting 3000 are.
    assert held["setting_saving_bytes"] == 1500 << 20
    [said] = words.sentences(verdict, kinds=("cache_held",))
    assert f"{setting} holds them. Write {write} instead: 1.46 GiB less are reserved" in said
