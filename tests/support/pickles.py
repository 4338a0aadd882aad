"""Pickles loaded by the core, compared, and loaded in an interpreter of their own."""

import json
import struct
import subprocess
import sys
import textwrap

from memlab import _core


def load_bytes(data):
    return _core.load(data)


def same(left, right):
    """Equality that tells True from 1, -0.0 from 0.0, and orders dicts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(a, b) for a, b in zip(left.items(), right.items(), strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    return left == right


def run(program, *arguments):
    """The output of a program in an interpreter of its own, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)
