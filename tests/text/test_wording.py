"""Numbers for people."""

import pytest

from memlab._text import wording


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (5 << 30, "5.00 GiB"),
        (3 << 40, "3.00 TiB"),
        (1 << 50, "1.00 PiB"),
        (3 << 59, "1.50 EiB"),
        ((1 << 64) - 1, "16.00 EiB"),
        (-(1 << 50), "-1.00 PiB"),
    ],
)
def test_sizes(count, said):
    assert wording.size(count) == said
