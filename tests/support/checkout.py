"""A copy of the files that memlab is built from, for tests that build it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FILES = (
    "setup.py pyproject.toml pytest_memlab.py MANIFEST.in Makefile LICENSE README.md "
    "CHANGELOG.md CONTRIBUTING.md memlab.pth requirements-test.txt .clang-format "
    ".editorconfig"
).split()
FOLDERS = "csrc tools memlab tests examples bench docs .ci".split()


def copy_checkout(target):
    """Copies the files that git keeps, without build results, to TARGET."""
    made = shutil.ignore_patterns("*.so", "*.new", "__pycache__", "_bridge_src")
    target.mkdir(parents=True)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, target)
    for name in FOLDERS:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, target / name, ignore=made)
    return target


def run_python(*args, cwd, check=True, **environment):
    """Runs this Python with ARGS and ENVIRONMENT on top of a plain environment."""
    plain = {
        k: v for k, v in os.environ.items() if not k.startswith(("MEMLAB_", "PYTHON"))
    }
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env={**plain, **{k: str(v) for k, v in environment.items()}},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if check:
        assert done.returncode == 0, done.stdout
    return done
