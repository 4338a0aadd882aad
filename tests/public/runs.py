"""A run of a public program on the phantom device, and what its advice was worth.

Owns how a program is started, and the comparison of a promise with a run that follows it.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import followed

import memlab
from memlab._lab import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from programs import Change, Program

GPU = "h100"
TIMEOUT_SECONDS = 900
# A promise is held where the saving differs from it by this part of it at most.
TOLERANCE = 0.05
PEAKS = ("allocated", "reserved")
# Advice whose saving is that of variables of the environment, which it names.
VARIABLES = {"settings": "PYTORCH_CUDA_ALLOC_CONF", "workspaces": "CUBLAS_WORKSPACE_CONFIG"}
_LEFT = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", *VARIABLES.values())


@dataclasses.dataclass(frozen=True)
class Tried:
    """One advice, and the saving of a run that follows it."""

    kind: str
    where: str
    exact: bool
    promised: dict[str, int]  # by peak, bytes
    share: dict[str, float]  # of the peak
    measured: dict[str, int] | None  # None: there is no change that follows it
    wrong: list[str]  # what is wrong with it, in words

    @property
    def told(self) -> list[str]:
        """The peaks whose saving is told: those of one part in a hundred."""
        return [peak for peak in PEAKS if self.share[peak] >= 0.01]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen of a program."""

    program: Program
    peak: dict[str, int]
    tried: list[Tried]
    wrong: list[str]

    @property
    def problems(self) -> list[str]:
        """What is wrong, of each advice too."""
        return self.wrong + [
            f"{item.kind} {item.where}: {problem}" for item in self.tried for problem in item.wrong
        ]


class Failed(Exception):
    """A program did not run to its end."""


def environment(program: Program) -> dict[str, str]:
    """Of a process of memlab's, which puts it on the phantom device."""
    root = str(Path(memlab.__file__).resolve().parents[1])
    paths = [root, program.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    return {
        **{key: value for key, value in os.environ.items() if key not in _LEFT},
        **program.environment,
        # As in an active environment: python and torchrun are this one's.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "MEMLAB_PHANTOM_GPU": GPU,
        "MEMLAB_PHANTOM_QUIET": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def arguments(program: Program, change: Change | None) -> list[str]:
    """Of the script; CHANGE's options with its values."""
    words = list(program.arguments)
    for name, value in (change.arguments if change else {}).items():
        if name in words:
            words[words.index(name) + 1] = value
        else:
            words += [name, value]
    return words


def record(
    program: Program,
    checkouts: Path,
    folder: Path,
    change: Change | None = None,
    variables: dict[str, str] | None = None,
) -> Path:
    """Runs PROGRAM below FOLDER, which is made, with CHANGE and VARIABLES; the recording."""
    folder.mkdir()
    start = program.write(checkouts, folder)
    if change is not None and change.is_diff:
        # A repository above would have git leave the paths below it alone.
        apart = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        words = ["git", "apply", "--unidiff-zero", str(change.path)]
        subprocess.run(words, cwd=folder, env=apart, check=True)
    command = [sys.executable, "-m", "memlab", "run", "--phantom", "--quiet", "--out", "memlab_out"]
    command += [program.script, *arguments(program, change)]
    done = subprocess.run(
        command,
        cwd=start,
        env={
            **environment(program),
            **(variables or {}),
            **(change.environment if change else {}),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise Failed(f"status {done.returncode} of {program.name}:\n" + "\n".join(said))
    return start / "memlab_out" / "rank0.mlab"


def peaks(recording: Path) -> dict[str, int]:
    """The peaks that the run had, of the GPU that it used most."""
    used = [device["recorded"] for device in memlab.replay(recording)["devices"]]
    most = max(used, key=lambda device: device["reserved_peak_bytes"])
    return {peak: most[f"{peak}_peak_bytes"] for peak in PEAKS}


def where(item: dict[str, Any]) -> str:
    """The line that an advice is about, else its modules."""
    if item["file"]:
        return f"{Path(item['file']).name}:{item['line']}"
    return str(item["module"]) if item["module"].strip("*") else ""


def follow(
    program: Program, checkouts: Path, folder: Path, item: dict[str, Any]
) -> dict[str, int] | None:
    """The peaks of a run that follows an advice; None where nothing is known that does."""
    if item["kind"] in VARIABLES:
        variables = {VARIABLES[item["kind"]]: item["conf"]}
        return peaks(record(program, checkouts, folder, variables=variables))
    for change in program.changes():
        if (change.kind, change.where) == (item["kind"], where(item)):
            return peaks(record(program, checkouts, folder, change))
    return None


def compare(
    item: dict[str, Any], before: dict[str, int], after: dict[str, int] | None
) -> Tried:
    promised = {peak: item[f"{peak}_saving_bytes"] for peak in PEAKS}
    share = {peak: promised[peak] / before[peak] for peak in PEAKS}
    measured = after and {peak: before[peak] - after[peak] for peak in PEAKS}
    tried = Tried(item["kind"], where(item), item["exact"], promised, share, measured, [])
    if not tried.told:
        tried.wrong.append("saves less than 1 %")
    if measured is None:
        tried.wrong.append("no patch follows it")
    for peak in tried.told if measured else []:
        off = measured[peak] / promised[peak] - 1
        if abs(off) > TOLERANCE:
            tried.wrong.append(f"{peak} {off:+.1%}")
    return tried


def see(program: Program, checkouts: Path) -> Iterator[Seen | Tried]:
    """Runs PROGRAM, and again with each advice followed; each Tried as it comes, then Seen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recording = record(program, checkouts, folder / "as_it_is")
        before = peaks(recording)
        devices = memlab.explain(recording)["devices"]
        device = max(devices, key=lambda device: device["recorded"]["reserved_bytes"])
        tried, wrong = [], []
        for number, item in enumerate(explain.told(device)):
            after = follow(program, checkouts, folder / str(number), dict(item))
            tried.append(compare(dict(item), before, after))
            done = followed.already(item, program.arguments, program.environment)
            if done:
                tried[-1].wrong.append(f"it is followed already: {done}")
            yield tried[-1]
        said = [(item.kind, item.where) for item in tried]
        wrong += [
            f"{change.path.name} follows no advice"
            for change in program.changes()
            if (change.kind, change.where) not in said
        ]
        kinds = [item.kind for item in tried]
        if len(set(said)) < len(said) or kinds.count("checkpoint") > 1:
            wrong.append("the same advice twice")
        yield Seen(program, before, tried, wrong)
