"""Libraries in C that a test preloads into a program's process."""

import os
import shlex
import shutil
import subprocess

import pytest


def shared_library(source, library, *flags):
    """LIBRARY, compiled from SOURCE with FLAGS; the test is skipped without a compiler."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} not found")
    subprocess.run(
        [*compiler, "-shared", "-fPIC", *flags, source, "-o", library, "-ldl"],
        check=True,
    )
    return library
