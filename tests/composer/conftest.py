"""Programs of these tests find small_trainer.py, and are ended where they hang."""

from pathlib import Path

import pytest


@pytest.fixture
def composer_run(phantom_run):
    """As phantom_run, of the source of a program that imports small_trainer."""

    def run(source, **options):
        prelude = (
            "import faulthandler, sys\n"
            "faulthandler.dump_traceback_later(200, exit=True)\n"
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        )
        return phantom_run(prelude + source, **options)

    return run
