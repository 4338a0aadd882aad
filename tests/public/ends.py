"""How a public program ends under each of memlab's commands, beside its end alone.

Owns the commands, and the comparison of status, output, parameters and what is unknown.
Alone is `memlab phantom` with nothing of memlab in the program: no value is computed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import runs
from programs import HERE

import memlab

if TYPE_CHECKING:
    from programs import Program

COMMANDS = ("alone", "run", "fit", "lines")
# Of the bytes at the peak, the most that may have no known category.
UNKNOWN = 0.01
# What differs from run to run: numbers, and what a program writes of a value.
_VARIES = re.compile(r"[-+]?(\b(nan|inf|True|False)\b|\d[\d.,:]*(e[-+]?\d+)?)")


@dataclasses.dataclass(frozen=True)
class End:
    """Of one process."""

    status: int
    output: str
    errors: str

    @property
    def all(self) -> str:
        """What it said, in one line."""
        return " ".join((self.output + self.errors).split())

    @property
    def last(self) -> str:
        """What it said last, for people."""
        return "\n".join((self.output + self.errors).strip().splitlines()[-12:])


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended under each command, and what its recording says."""

    program: Program
    status: dict[str, int]  # by command
    unknown: float  # of the bytes at the peak
    parameters: tuple[int, int]  # bytes of their blocks: as recorded, as torch has them
    elements: int  # bytes of the parameters alone
    made_up: int  # values that the program read
    problems: list[str]

    @property
    def right(self) -> bool:
        """Whether the recording has torch's parameters."""
        return self.parameters[0] == self.parameters[1]


def words(program: Program, command: str) -> list[str]:
    started = [*program.launcher, program.script, *program.arguments]
    python = [] if program.launcher else ["python"]
    return [
        sys.executable, "-m", "memlab",
        *{
            "alone": ["phantom", *python],
            "run": ["run", "--phantom", "--out", "memlab_out"],
            "fit": ["fit", "--json"],
            "lines": ["lines", "--phantom", "-f", program.function],
        }[command],
        *started,
    ]  # fmt: skip


def end(program: Program, checkouts: Path, folder: Path, command: str, **more: str) -> End:
    """Runs PROGRAM below FOLDER, which is made; MORE: variables of the environment."""
    folder.mkdir()
    start = program.write(checkouts, folder)
    done = subprocess.run(
        words(program, command),
        cwd=start,
        # The phantom's own line says that values are not computed.
        env={
            **runs.environment(program),
            "MEMLAB_PHANTOM_QUIET": "0",
            "MEMLAB_PHANTOM_VALUES": "0",
            **more,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=runs.TIMEOUT_SECONDS,
    )
    return End(done.returncode, done.stdout, done.stderr)


def shape(output: str, folder: Path) -> list[str]:
    """The lines of OUTPUT without what differs from run to run: numbers, and FOLDER; of
    several ranks or processes in no order."""
    text = output.replace(str(folder), "").replace("\r", "\n")
    lines = (_VARIES.sub("#", line).strip() for line in text.splitlines())
    return sorted(filter(None, lines))


def recorded(folder: Path) -> tuple[int, int, int]:
    """Of the recordings below FOLDER, at each GPU's peak: bytes of parameters, of what has
    no category, and of all."""
    parameters = unknown = peak = 0
    for path in folder.rglob("memlab_out/rank*.mlab"):
        recording = memlab.open(path)
        for device in recording.devices:
            at_peak = recording.peak(device)
            parameters += at_peak["by_category"]["parameter"]
            unknown += at_peak["by_category"]["unknown"]
            peak += at_peak["peak"]["allocated_bytes"]
    return parameters, unknown, peak


def counted(folder: Path) -> tuple[int, int]:
    """What parameters/sitecustomize.py kept in FOLDER: bytes of the elements, of the blocks."""
    found = [json.loads(path.read_text()).values() for path in folder.iterdir()]
    pairs = [pair for process in found for pair in process]
    return sum(elements for elements, _ in pairs), sum(blocks for _, blocks in pairs)


def read(errors: str) -> int:
    """Values that memlab says to be made up, of all ranks."""
    found = re.findall(r"the program read ([\d,]+) values? that", " ".join(errors.split()))
    return sum(int(number.replace(",", "")) for number in found)


def count_parameters(program: Program, checkouts: Path, folder: Path) -> tuple[int, int]:
    """Runs PROGRAM once more, and counts with torch."""
    kept = folder.with_name(f"{folder.name}_parameters")
    kept.mkdir()
    beside = str(HERE / "parameters")
    paths = os.pathsep.join([beside, runs.environment(program)["PYTHONPATH"]])
    end(program, checkouts, folder, "run", PARAMETERS=str(kept), PYTHONPATH=paths)
    return counted(kept)


def problems_of(program: Program, ends: dict[str, End], folder: Path) -> list[str]:
    """What is wrong with how PROGRAM ended below FOLDER."""
    wrong = []
    alone = shape(ends["alone"].output, folder / "alone")
    for command, done in ends.items():
        if command in program.limited:
            if not done.status or program.limit not in done.all:
                wrong.append(f"{command}: it does not end with {program.limit!r}")
            continue
        if done.status:
            wrong.append(f"{command}: status {done.status}:\n{done.last}")
        if command in ("run", "lines") and "alone" not in program.limited:
            other = shape(done.output, folder / command)
            missing = Counter(alone) - Counter(other)
            # Processes write into each other's lines: then every character is there.
            if missing and Counter("".join(alone)) - Counter("".join(other)):
                wrong.append(f"{command}: not printed: {sorted(missing)[:3]}")
    return wrong


def see(program: Program, checkouts: Path) -> Ended:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ends = {
            command: end(program, checkouts, folder / command, command)
            for command in COMMANDS
        }
        wrong = problems_of(program, ends, folder)
        status = {command: done.status for command, done in ends.items()}
        parameters, unknown, peak = recorded(folder / "run")
        elements, blocks = count_parameters(program, checkouts, folder / "counted")
        share = unknown / peak if peak else 0.0
        seen = Ended(
            program, status, share, (parameters, blocks), elements, read(ends["run"].errors), wrong
        )
        if "run" in program.limited:
            return seen
        if share >= UNKNOWN:
            wrong.append(f"run: {share:.1%} of the peak has no category")
        if not seen.right:
            wrong.append(f"run: parameters take {parameters} bytes, torch says {blocks}")
        return seen
