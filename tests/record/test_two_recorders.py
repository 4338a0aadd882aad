"""Several recordings at once, torch's own among them."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "isolated" / "two_recorders.py"


@pytest.mark.cuda
def test_recordings_side_by_side_do_not_disturb_each_other(phantom_run):
    """Limits, contexts, C++ frames, windows; and torch's history stays as it was."""
    phantom_run(PROGRAM)
