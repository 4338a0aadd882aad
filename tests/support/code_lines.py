"""Recordings by script of programs whose lines of code the tests look for."""

import functools
import types
from pathlib import Path

import memlab

KIB = 1 << 10
MIB = 1 << 20
SEGMENT = 1 << 40
SECRET = "PASSWORD = 'swordfish'"


def named(code, path):
    """CODE as if from the file at PATH, which need not be a file's name."""
    constants = tuple(
        named(item, path) if isinstance(item, types.CodeType) else item
        for item in code.co_consts
    )
    return code.replace(co_filename=path, co_consts=constants)


def record(script, path, source="x = 1\nallocate(size=KIB)\n", text=None, **options):
    """The recording of SOURCE, run as if it were the file at PATH.  If TEXT is not
    None, the file's text becomes TEXT before the recording is read.
    """
    with memlab.MemorySnapshot(source="script", **options) as snapshot:
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        allocate = functools.partial(script.emit, "alloc", SEGMENT)
        code = compile(source, "program.py", "exec")
        exec(named(code, str(path)), {"allocate": allocate, "KIB": KIB})
        if text is not None:
            Path(path).write_text(text)
    script.reset()
    return snapshot.data()


def kept(recording, path):
    """{(function, line): text} of the recording's lines in the file at PATH."""
    lines = recording.code_lines()
    return {(line[1], line[2]): line[3] for line in lines if line[0] == str(path)}


PROGRAM = """\
def step():
    allocate(size=KIB)  # in
    return "not named"

class Net:
    def forward(self):
        return step()   # out

Net().forward()
"""
