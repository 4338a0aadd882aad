"""Runs torch's own tests of memory snapshots and their pictures on memlab's functions.

    tests/public/torch_tests.py CHECKOUT [--only NAME...] [--torch]

CHECKOUT is a clone of torch whose tests fit the torch of this Python.  Those tests of its
test/test_cuda.py that use the functions of NAMES are run, each in a process of its own,
on the phantom device unless there is a GPU, with memlab's functions in the place of
torch's.  --torch runs them with torch's own, to tell whose failure it is.  Needs psutil,
numpy and expecttest.  The status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import unittest
from pathlib import Path

# torch's names that memlab has, by their modules.
NAMES = {
    "torch.cuda.memory": (
        "_record_memory_history",
        "_snapshot",
        "_dump_snapshot",
        "_allocation_traceback",
        "_save_segment_usage",
        "_save_memory_usage",
    ),
    "torch.cuda._memory_viz": (
        "trace_plot",
        "segment_plot",
        "profile_plot",
        "segments",
        "memory",
        "compare",
        "segsum",
        "trace",
    ),
}

DOES_NOT_FIT = 3


def wanted(checkout: Path) -> list[str]:
    """CLASS.TEST of each test that uses one of the names."""
    source = (checkout / "test" / "test_cuda.py").read_text()
    names = {name for of in NAMES.values() for name in of}
    found = []
    for test_class in ast.parse(source).body:
        if isinstance(test_class, ast.ClassDef):
            for test in test_class.body:
                if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                    used = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
                    used |= {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
                    if used & (names - {"memory", "trace", "segments", "compare"}):
                        found.append(f"{test_class.name}.{test.name}")
    return found


def alias() -> None:
    """memlab's functions in the place of torch's."""
    import importlib

    import memlab
    from memlab import viz

    for module, names in NAMES.items():
        for name in names:
            ours = memlab if module == "torch.cuda.memory" else viz
            setattr(importlib.import_module(module), name, getattr(ours, name))


def torch_version() -> str:
    import torch

    return torch.__version__


def run_one(checkout: Path, test: str) -> int:
    sys.argv = ["test_cuda.py"]
    sys.path.insert(0, str(checkout / "test"))
    try:
        import test_cuda
    except ImportError as error:
        print(f"{checkout}/test/test_cuda.py does not fit torch {torch_version()}: {error}")
        return DOES_NOT_FIT
    result = unittest.TextTestRunner(verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromName(test, test_cuda)
    )
    for _, why in result.skipped:
        print(f"skipped: {why}")
    return 0 if result.wasSuccessful() else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        if not options.torch:
            alias()
        return run_one(options.checkout, options.one)
    from memlab import phantom
    from memlab._native import devices

    command = [sys.executable, __file__, str(options.checkout)]
    command += ["--torch"] * options.torch + ["--one"]
    here = devices.gpu_present()
    environment = {**os.environ, **({} if here else phantom.environment())}
    failed = 0
    for test in wanted(options.checkout):
        name = test.partition(".")[2]
        if options.only and name not in options.only:
            continue
        ran = subprocess.run(
            [*command, test], env=environment, capture_output=True, text=True, timeout=900
        )
        if ran.returncode == DOES_NOT_FIT:
            print(ran.stdout, end="", file=sys.stderr)
            return DOES_NOT_FIT
        skipped = [line for line in ran.stdout.splitlines() if line.startswith("skipped: ")]
        verdict = "failed" if ran.returncode else skipped[0] if skipped else "passed"
        print(f"| `{name}` | {verdict} |", flush=True)
        if ran.returncode:
            failed += 1
            print(ran.stderr, file=sys.stderr)
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
