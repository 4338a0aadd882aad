"""Sizes in words: three significant digits, by values worked out by hand."""

import pytest

from memlab._text import wording


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (-2048, "-2.00 KiB"),
        # 1.125 and 1.375, to the even digit.
        (1152, "1.12 KiB"),
        (1408, "1.38 KiB"),
        # 999.499 and 999.5 KiB, and 1 byte below 1 MiB.
        (1_023_487, "999 KiB"),
        (1_023_488, "0.976 MiB"),
        (-1_023_488, "-0.976 MiB"),
        ((1 << 20) - 1, "1.00 MiB"),
        # 9.994 and 9.996 MiB.
        (10_479_468, "9.99 MiB"),
        (10_481_565, "10.0 MiB"),
        # 99.95 MiB is 104,805,171.2 bytes.
        (104_805_171, "99.9 MiB"),
        (104_805_172, "100 MiB"),
        # 577.93 MiB.
        (606_000_000, "578 MiB"),
        # 1000 and 1023 of 1024 parts.
        (1000 << 20, "0.977 GiB"),
        (1023 << 20, "0.999 GiB"),
        ((1 << 30) - 1, "1.00 GiB"),
        (5 << 40, "5.00 TiB"),
        (1 << 50, "1.00 PiB"),
        (1999 << 49, "0.976 EiB"),
        (3 << 59, "1.50 EiB"),
        ((1 << 64) - 1, "16.0 EiB"),
    ],
)
def test_a_size_has_three_significant_digits(count, text):
    assert wording.size(count) == text


@pytest.mark.parametrize("words", [wording.shorten, wording.near])
def test_the_file_of_a_cell_is_named_as_one(words):
    assert words("/tmp/ipykernel_4711/815.py", "/tmp") == "<cell>"
    assert words("/tmp/ipykernel_4711/train.py", "/tmp") == "ipykernel_4711/train.py"
    assert words("/tmp/ipykernel_4711/1/2.py", "/") == "tmp/ipykernel_4711/1/2.py"
