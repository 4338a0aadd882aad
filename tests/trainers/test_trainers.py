"""memlab beside the real packages of trainers.  `make test-trainers` has them; elsewhere
the tests are skipped.  What each must show is worked out by hand in its program."""

import importlib.util
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent


def need(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (make test-trainers has them)")


@pytest.mark.cuda
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_flat_buffers_of_deepspeed_have_their_categories(phantom_run, stage):
    need("deepspeed")
    phantom_run(PROGRAMS / "deepspeed_zero.py", stage)


@pytest.mark.cuda
def test_an_adapter_is_trained_by_trl_with_the_callbacks(phantom_run):
    need("trl", "peft", "datasets")
    phantom_run(PROGRAMS / "peft_sft.py")
