"""The reference of the command line has every command and every option of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from memlab._cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text()


def commands():
    """{name: its options}, of the parsers."""
    (choices,) = main._parser()._subparsers._group_actions
    return {name: parser._option_string_actions for name, parser in choices.choices.items()}


def test_every_command_says_its_exit_status():
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(commands())


def test_every_option_is_in_the_reference():
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "docs" / "command_line.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    parts = dict(re.findall(r"^## memlab (\w+)\n(.*?)(?=^## |\Z)", made, re.M | re.S))
    assert parts.keys() == commands().keys()
    for name, options in commands().items():
        for option in options.keys() - {"-h", "--help"}:
            assert option in parts[name], f"{name} {option}"
    assert "--devices" in parts["phantom"] and "MEMLAB_PHANTOM_GPU" in parts["phantom"]
