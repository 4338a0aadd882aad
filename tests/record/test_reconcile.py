"""Allocated, active, requested and reserved bytes, current and peak, are torch's."""

from pathlib import Path

import pytest
from amounts import amount, seed

PROGRAM = Path(__file__).resolve().parents[1] / "isolated" / "reconcile.py"


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
    steps = amount("STEPS", 150)
    environment = {
        "PYTORCH_CUDA_ALLOC_CONF": configuration,
        "MEMLAB_PHANTOM_DEVICES": "2",
    }
    done = phantom_run(
        PROGRAM, seed("STEPS", steps > 150), steps, env=environment, timeout=3600
    )
    print(done.stdout)


@pytest.mark.cuda
@pytest.mark.nightly
def test_totals_of_recordings_begun_late_are_torchs(phantom_run):
    """In the process, the .mlab file, the pickle and what they merge to; on one to four
    devices.  The seed, the settings and the number of a program that fails are told."""
    programs = amount("TOTALS", 30)
    environment = {"MEMLAB_PHANTOM_DEVICES": "4"}
    done = phantom_run(
        PROGRAM.with_name("totals.py"),
        *(seed("TOTALS", programs > 30), programs),
        env=environment,
        timeout=60 + 5 * programs,
    )
    print(done.stdout)
    assert f"{programs} programs: all totals are torch's" in done.stdout
