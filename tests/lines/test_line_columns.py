"""Every field of torch.cuda.memory_stats() as a column of a line table, against torch."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.cuda

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "line_columns.py"

# Settings of the allocator, and the fields that stay 0 under them.
REJECTED = {"num_oom_rejections"}
OVERSIZE = REJECTED | {
    f"oversize_{what}.{metric}"
    for what in ("allocations", "segments")
    for metric in ("current", "peak", "allocated", "freed")
}
# torch counts neither expandable segments nor the free rests of their blocks.
UNCOUNTED = {
    f"{what}.{pool}.{metric}"
    for what in ("segment", "inactive_split", "inactive_split_bytes")
    for pool in ("large_pool", "small_pool", "all")
    for metric in ("current", "peak", "allocated", "freed")
}
SETTINGS = {
    "": OVERSIZE,
    "max_split_size_mb:30": REJECTED,
    "expandable_segments:True": OVERSIZE | UNCOUNTED,
    "roundup_power2_divisions:4,garbage_collection_threshold:0.5": OVERSIZE,
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_columns_are_torchs_own_figures(settings, phantom_run):
    done = phantom_run(PROGRAM, 1, 60, env={"PYTORCH_CUDA_ALLOC_CONF": settings})
    compared, zero = done.stdout.splitlines()
    assert int(compared.split()[0]) > 60 * 5 * 100
    assert set(zero.split()[1:]) == SETTINGS[settings]
