"""docs/LABORATORY.md's examples do what it says: each command and each Python block runs."""

import functools
import re
import shlex
from pathlib import Path

import pytest

import memlab
from memlab import _core
from memlab._cli import main

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "LABORATORY.md").read_text()
MIB = 1 << 20
BASE = 1 << 40


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCS, re.S | re.M)


def commands():
    """The words of each command, of sh blocks and of indented ones."""
    indented = re.findall(r"(?<=\n\n)(?: {4}\S.*\n)+", DOCS)
    for line in "".join([*blocks("sh"), *indented]).splitlines():
        yield shlex.split(line, comments=True)


COMMANDS = [words for words in commands() if words]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the recording that the examples name."""
    folder = tmp_path_factory.mktemp("laboratory")
    script = _core.Script()
    script.reset()
    (folder / "out").mkdir()
    with memlab.MemorySnapshot(source="script", file=folder / "out" / "rank0.mlab"):
        script.emit("segment_alloc", BASE, 64 * MIB, time=1_000_000_000)
        for i in range(4):
            script.emit("alloc", BASE + 16 * i * MIB, 16 * MIB, time=2_000_000_000 + i)
        script.emit("free_requested", BASE, 16 * MIB, time=3_000_000_000)
        script.emit("free_completed", BASE, 16 * MIB, time=3_000_000_001)
    script.reset()
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_run(folder, capsys, words):
    """Those that run a program of the reader's are only read."""
    if words[0] == "torchrun" or words[1] == "phantom":
        return
    assert words[0] == "memlab", words
    if words[1] in ("run", "fit") or "--measure" in words:
        assert main.parse(words[1:]).command == words[1]
        return
    assert main.main(words[1:]) == 0, capsys.readouterr().err


def test_every_command_of_the_page_is_looked_at():
    lines = re.findall(r"^(?: {4})?(?:memlab|torchrun) .*(?<![.:])$", DOCS, re.M)
    assert len(lines) == len(COMMANDS) > 5


def train():
    pass


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(folder, capsys, monkeypatch, block):
    if "fit(" in block:
        compile(block, "LABORATORY.md", "exec")
        return
    # On the script, which is a source that needs no GPU.
    of_the_script = functools.partial(memlab.MemorySnapshot, source="script")
    monkeypatch.setattr(memlab, "MemorySnapshot", of_the_script)
    exec(compile(block, "LABORATORY.md", "exec"), {"train": train})
    if "print(" in block:
        assert capsys.readouterr().out
