"""Memory by script, for the tests of line tables."""

import pytest
from scripted_lines import memory


@pytest.fixture
def m():
    with memory() as blocks:
        yield blocks
