"""The line of an instruction, from a code object's line table, against what Python says."""

import glob
import os
import sys
from pathlib import Path


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_consts"):
            yield from code_objects(constant)


def line_at_each_offset(code):
    """By co_lines(), which is not how PyCode_Addr2Line finds them."""
    lines = [-1] * len(code.co_code)
    for start, end, line in code.co_lines():
        for offset in range(start, end):
            lines[offset] = -1 if line is None else line
    return lines


def test_lines_of_the_standard_library(probe):
    """Each instruction of a third of the standard library's top folder."""
    folder = os.path.dirname(os.__file__)
    files = sorted(glob.glob(f"{folder}/*.py"))[::3] + glob.glob(f"{folder}/asyncio/*")
    minor = sys.version_info.minor
    checked = 0
    for path in files:
        if not path.endswith(".py"):
            continue
        for code in code_objects(compile(Path(path).read_bytes(), path, "exec")):
            lines = line_at_each_offset(code)
            table, first = code.co_linetable, code.co_firstlineno
            for offset in range(0, len(code.co_code), 2):
                got = probe.line(table, first, minor, offset)
                assert got == lines[offset], (path, code.co_name, offset)
                assert got == probe.python_line(code, offset)
                checked += 1
            assert probe.line(table, first, minor, -2) == first
    assert checked > 100_000


def test_lines_of_unusual_code(probe):
    far = "def f():\n  return (\n" + "\n" * 5000 + "    g())\n"
    tangled = "x = [\n  i\n  for i in (\n    1, 2)\n  if i\n]\ntry:\n  y\nexcept E: z\n"
    for source in (far, tangled, "", "\n" * 70000 + "x\n"):
        for code in code_objects(compile(source, "<test>", "exec")):
            for offset, line in enumerate(line_at_each_offset(code)):
                got = probe.line(
                    code.co_linetable,
                    code.co_firstlineno,
                    sys.version_info.minor,
                    offset,
                )
                assert got == line
