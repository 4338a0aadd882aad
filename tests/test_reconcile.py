"""Allocated, active, requested and reserved bytes, current and peak, are torch's."""

import random
from pathlib import Path

import pytest
from amounts import amount

PROGRAM = Path(__file__).resolve().parent / "isolated" / "reconcile.py"


@pytest.mark.cuda
@pytest.mark.nightly
@pytest.mark.parametrize(
    "configuration",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32,garbage_collection_threshold:0.8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    ],
)
def test_totals_are_torchs_after_every_step(phantom_run, configuration):
    """Random programs on two devices; the seed is in the message of a failure."""
    seed = random.SystemRandom().randrange(1 << 32)
    environment = {
        "PYTORCH_CUDA_ALLOC_CONF": configuration,
        "MEMLAB_PHANTOM_DEVICES": "2",
    }
    done = phantom_run(
        PROGRAM, seed, amount("STEPS", 150), env=environment, timeout=3600
    )
    print(done.stdout)
