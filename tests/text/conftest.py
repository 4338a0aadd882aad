"""A program whose lines of code the tests look for, and line tables to show."""

import pytest
from code_lines import PROGRAM
from shown_tables import DEFAULT, KIB, MIB, TIB, codes, golden, table, tables


@pytest.fixture
def program(script, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def demo():
    """The first tables of pytorch_memlab's notebook, of its figures.

    Linear(1000, 100): 400,000 bytes in blocks of 512 are 400,384, with 512 of the bias
    400,896, 391.5 KiB."""
    source = (
        "import torch\n\n"
        "def x():\n    torch.nn.Linear(100, 100).cuda()\n    \n"
        "def y(gpu=0):\n    torch.nn.Linear(1000, 100).cuda(device=gpu)\n"
    )
    code = codes(source, "demo.py")
    return tables(
        table(code["x"], {3: (0, 0), 4: (40 * KIB, 2 * MIB)}),
        table(code["y"], {6: (0, 2 * MIB), 7: (400_896, 2 * MIB)}),
    )


@pytest.fixture
def odd():
    """The figures that pytorch_memlab was given for odd.txt and odd.html."""
    columns = (*DEFAULT, "active_bytes.all.allocated")
    code = codes(golden("odd_source.txt"), "odd.py")
    forward = {
        5: (0, 2 * MIB, 0),
        9: (1023, 2 * MIB, 512),
        11: (12345678, 24 * MIB, 1048575),
        12: (12345678, 24 * MIB, 0),
    }
    return tables(
        table(code["Net.forward"], forward, columns, "Net.forward"),
        table(code["one"], {15: (24 * MIB, 48 * MIB, TIB)}, columns),
        columns=columns,
    )
