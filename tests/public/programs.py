"""A public program: where it is from, how it is run, and the changes that are tried on it.

Owns programs.ini and the folder of patches: reading them, and what is missing here to run a
program.  Running is runs.py's.
"""

from __future__ import annotations

import configparser
import dataclasses
import importlib
import inspect
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import tiny_data
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
GITHUB = "https://github.com/"


@dataclasses.dataclass(frozen=True)
class Change:
    """What follows one advice: a diff of the program, other arguments, or the environment."""

    path: Path
    kind: str
    where: str  # the module or the line, as it is told
    arguments: dict[str, str]  # of options, other values
    environment: dict[str, str]

    @property
    def is_diff(self) -> bool:
        return "\n@@ " in self.path.read_text()


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    repository: str  # owner/name on GitHub; "" where a package brings the program
    commit: str
    folder: str  # of the repository; the program is started in it
    files: tuple[str, ...]  # of the repository, as git archive takes them
    launcher: tuple[str, ...]  # words that start it as several ranks; () for none
    script: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    packages: tuple[str, ...]  # names to import, beside torch
    passes: str  # MODULE:FUNCTION ARGUMENT, which not every torch takes; "" for none
    data: str  # a function of tiny_data, and its words; "" for none
    function: str  # that memlab lines profiles
    limited: tuple[str, ...]  # commands under which it cannot run to its end on the phantom
    limit: str  # what is said there
    patches: Path  # folder

    def checkout(self, checkouts: Path) -> Path:
        return checkouts / self.repository.rpartition("/")[2]

    def left_out(self, checkouts: Path) -> str:
        """Why it cannot run here, in words; "" where it can."""
        missing = []
        for package in self.packages:
            try:
                importlib.import_module(package)
            except ImportError:
                missing.append(package)
        if missing:
            return f"not installed: {', '.join(missing)}"
        if self.passes and not takes(*self.passes.split()):
            return f"torch {torch.__version__} does not take {self.passes}, which it passes"
        if not self.repository:
            return ""
        checkout = self.checkout(checkouts)
        if not checkout.is_dir():
            return f"no checkout: git clone {GITHUB}{self.repository} {checkout}"
        if git(checkout, "cat-file", "-e", self.commit).returncode:
            return f"no commit: git -C {checkout} fetch origin {self.commit}"
        return ""

    def write(self, checkouts: Path, into: Path) -> Path:
        """Writes the program, and its data, below INTO; the folder that it is started in."""
        if not self.repository:
            return into
        archive = git(self.checkout(checkouts), "archive", self.commit, "--", *self.files)
        if archive.returncode:
            raise RuntimeError(archive.stderr.decode())
        subprocess.run(["tar", "-x", "-C", str(into)], input=archive.stdout, check=True)
        start = into / self.folder
        if self.data:
            function, *words = self.data.split()
            getattr(tiny_data, function)(start, *words)
        return start

    def changes(self) -> Iterator[Change]:
        for path in sorted(self.patches.glob(f"{self.name}.*.patch")):
            head = dict(
                line.split(": ", 1)
                for line in path.read_text().split("\n--- ")[0].splitlines()
                if ": " in line
            )
            kind, _, where = head["advice"].partition(" ")
            yield Change(
                path,
                kind,
                where,
                dict(pairs(head.get("arguments", ""))),
                dict(pairs(head.get("environment", ""))),
            )


def git(checkout: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, check=False)


def takes(function: str, argument: str) -> bool:
    """Whether FUNCTION, MODULE:NAME, takes an ARGUMENT of that name."""
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)
    return argument in inspect.signature(found).parameters


def pairs(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE words of TEXT."""
    return [
        (name, value) for name, _, value in (word.partition("=") for word in shlex.split(text))
    ]


def read(folder: Path = HERE) -> list[Program]:
    """The programs of FOLDER's programs.ini, in its order."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(folder / "programs.ini")
    commits = parser["commits"]
    return [
        Program(
            name,
            of.get("repository", ""),
            commits.get(of.get("repository", ""), ""),
            of.get("folder", "."),
            tuple(of.get("files", of.get("folder", "")).split()),
            tuple(of.get("launcher", "").split()),
            of["script"],
            tuple(shlex.split(of.get("arguments", ""))),
            dict(pairs(of.get("environment", ""))),
            tuple(of.get("packages", "").split()),
            of.get("passes", ""),
            of.get("data", ""),
            of.get("function", ""),
            tuple(of.get("limit", "").partition(":")[0].split()),
            of.get("limit", "").partition(":")[2].strip(),
            folder / "patches",
        )
        for name, of in parser.items()
        if name not in ("DEFAULT", "commits")
    ]
