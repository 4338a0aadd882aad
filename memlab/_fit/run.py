"""One run of a program on the phantom device, in a process of its own, for `memlab
fit`.

Owns how a command runs program.py, its time limit, and its result.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

from memlab import phantom
from memlab._errors import Error
from memlab._fit import alone, program
from memlab._fit.folder import temporary_folder
from memlab._run import commands
from memlab._text import wording

# What answers and sweeps tell of a device, in this order.
BYTES = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")
# How long a run may take is told from this many seconds on.
_TOLD_SECONDS = 2
# Time to write the recording after the request to end.
_GRACE_SECONDS = 30
_TAIL_LINES = 80
# Ranks that wait for each other take turns; after so many one goes on without the others.
_MOST_ATTEMPTS = 8
_WRAPPER = """#!/bin/sh
exec "$MEMLAB_FIT_PYTHON" -m memlab._fit.program "$@"
"""


class Command:
    """A command line that starts a Python program.

    words: "train.py --lr 1", "python -m package.train", "torchrun --nproc-per-node 2
    train.py". Raises memlab.Error if they start no Python program.
    """

    def __init__(self, words):
        if not words:
            raise Error("no program given; for example: memlab fit python train.py")
        self.python = sys.executable
        words = list(words)
        if _is_python(words[0]):
            # A bare name means the Python that has memlab, whatever else is in the
            # PATH.
            if os.path.dirname(words[0]):
                self.python = words[0]
            words = words[1:]
        elif words[0] != "-m" and not os.path.isfile(words[0]):
            words[0] = _installed(words[0])
        try:
            self._options, module, rest = program.split(words)
        except ValueError as error:
            raise Error(str(error)) from None
        if not rest:
            raise Error("no program given; for example: memlab fit python train.py")
        if not module and not os.path.isfile(rest[0]):
            raise Error(f"{rest[0]}: no such program; give the file of a script")
        self._program = ["-m", *rest] if module else rest
        self.name = os.path.basename(rest[0])
        self._launches = self.name in program.LAUNCHERS
        if self._launches:
            scripts = [os.path.basename(word) for word in rest if word.endswith(".py")]
            modules = [word for before, word in zip(rest, rest[1:]) if before == "-m"]
            self.name = next(iter(scripts + modules), self.name)

    def argv(self, folder, alone=False):
        """(words, environment variables) of a run that leaves its files.  ALONE: of one
        rank, which no launcher starts.
        """
        if alone or not self._launches:
            return [self.python, *self._options, "-m", "memlab._fit.program", *self._program], {}
        # torchrun starts the ranks with the interpreter in PYTHON_EXEC.
        wrapper = os.path.join(folder, "python")
        with open(wrapper, "w") as file:
            file.write(_WRAPPER)
        os.chmod(wrapper, 0o700)
        return [self.python, *self._options, *self._program], {
            "PYTHON_EXEC": wrapper,
            "MEMLAB_FIT_PYTHON": self.python,
            # The ranks are processes that share devices.
            "MEMLAB_PHANTOM_SHARED": os.path.join(folder, "shared"),
            # torchrun's default, with a free port instead of 29500, which may be taken.
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "localhost:0",
        }


def ranks_of(words):
    """Number of processes that torchrun starts here with the WORDS of a command; None:
    another program, or no number given.
    """
    words = list(words[_is_python(words[0]) :])
    try:
        _, _, [launcher, *rest] = program.split(words)
    except ValueError:
        return None
    if os.path.basename(launcher) not in program.LAUNCHERS:
        return None
    for at, word in enumerate(rest):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == "--nproc-per-node":
            value = value if equals else (rest[at + 1 : at + 2] or [""])[0]
            return int(value) if value.isdecimal() and int(value) > 0 else None
    return None


def _is_python(word):
    return commands.is_python(os.path.basename(word))


def _installed(word):
    """The file of the program WORD, which must be a Python program."""
    path = commands.find(word)
    if path is None:
        raise Error(f"{word}: no such program; give the file of a script")
    with open(path, "rb") as file:
        first = file.readline(512)
    if not first.startswith(b"#!") or b"python" not in first:
        raise Error(
            f"{word} is not a Python program; give the script that it starts, for example "
            "memlab fit python train.py"
        )
    return path


@dataclasses.dataclass
class Result:
    """The result of a run."""

    status: int
    late: bool  # it did not end in time
    ranks: dict  # number -> program.py's figures
    recordings: dict  # number -> path of its recording
    output: str  # the last lines of its output
    refused: str | None  # why it was not started
    wanted: int | None = None  # the rank that must run before, alone in its process
    # Of ranks alone in their processes: rank -> its own result, and why it was chosen.
    alone: dict = dataclasses.field(default_factory=dict)
    reasons: dict = dataclasses.field(default_factory=dict)

    @property
    def out_of_memory(self):
        """Whether memory ran out and ended the program."""
        if self.alone:
            return any(result.out_of_memory for result in self.alone.values())
        return self.status != 0 and any(
            rank["out_of_memory"]
            or (rank["error"] is None and any(d["ooms"] for d in rank["devices"]))
            for rank in self.ranks.values()
        )

    @property
    def failed(self):
        """Whether the program ended by an error of its own.  Ranks that wait for an
        ended one fail too; that does not count.
        """
        if self.alone:
            return any(result.failed for result in self.alone.values())
        stopped = any(rank["ended"] == "stopped" for rank in self.ranks.values())
        return self.status != 0 and not (self.late or self.out_of_memory or stopped)

    @property
    def usable(self):
        """Whether it has figures of at least one step of each rank that was recorded."""
        return bool(self.ranks) and all(
            rank["steps"] and rank["devices"] for rank in self.ranks.values()
        )


class Runs:
    """A folder for the runs of one command, as a context manager."""

    def __init__(self, gpu, devices, timeout, steps, settled, world=None):
        self._gpu, self._devices = gpu, devices
        self._world = world
        self._timeout = timeout
        self._steps, self._settled = steps, settled
        self._count = 0
        self.tell = lambda text: None
        self._took = 0.0  # seconds of the last run

    def __enter__(self):
        self._open = contextlib.ExitStack()
        self._folder = self._open.enter_context(temporary_folder())
        return self

    def __exit__(self, *exception):
        self._open.close()

    def tell_run(self, text):
        """Tells TEXT of a run that begins, and how long it may take: as the one before."""
        long = self._took >= _TOLD_SECONDS
        self.tell(f"{text}, about {self._took:.0f} s" if long else text)

    def run(self, command, memory, variables=None):
        """The Result of COMMAND on devices of MEMORY bytes, with further VARIABLES."""
        if self._world is None:
            return self._run(command, memory, variables)
        self._kept = self._new_folder()
        done, reasons = {}, {}
        for choose in (self._world.first, lambda: self._world.others(_layout(done))):
            for rank, reason in choose().items():
                reasons[rank] = reason
                self._run_alone(rank, command, memory, variables, done, [])
                ended = _answering(done)
                if ended is not None:
                    reasons.setdefault(ended, f"rank {rank} needs what it sends")
                    return _together(done, reasons)
        return _together(done, reasons)

    def _run_alone(self, rank, command, memory, variables, done, waiting):
        """Runs RANK, and before it those whose messages it needs, into DONE.  WAITING: the
        ranks that wait for this one.  Returns the one of these that it needs, itself or by
        others: then it is that one's turn.  None: it has run.
        """
        given_up = set()
        for _ in range(_MOST_ATTEMPTS):
            kept = len(os.listdir(self._kept))
            self.tell_run(f"running rank {rank} of {self._world.size:,}")
            ran = [*done, *given_up, rank]
            result = self._run(command, memory, variables, rank, ran)
            if result.wanted is None:
                done[rank] = result
                return None
            if result.wanted in waiting:
                return result.wanted
            needed = self._run_alone(
                result.wanted, command, memory, variables, done, [*waiting, rank]
            )
            if _answering(done) is not None:
                return None
            if needed is not None and len(os.listdir(self._kept)) == kept:
                if needed in waiting:
                    return needed
                # Each waits for the other.
                given_up.add(result.wanted)
        ran = range(self._world.size)
        done[rank] = self._run(command, memory, variables, rank, list(ran))
        return None

    def again(self, rank, command, memory, variables, ran):
        """The Result of RANK alone once more, with other VARIABLES, after run() of a world,
        in which RAN were run: what they sent is still there.
        """
        return self._run(command, memory, variables, rank, list(ran))

    def _new_folder(self):
        self._count += 1
        folder = os.path.join(self._folder, str(self._count))
        os.mkdir(folder, 0o700)
        return folder

    def _run(self, command, memory, variables, rank=None, ran=()):
        """The Result of one process; of RANK alone, after those of RAN."""
        folder = self._new_folder()
        words, own = command.argv(folder, rank is not None)
        how = {"folder": folder, "steps": self._steps, "settled": self._settled}
        if rank is not None:
            how["alone"] = [rank, self._world.size, folder, self._kept, ran]
            own = self._world.variables(rank)
        environment = {
            **os.environ,
            **phantom.environment(self._gpu, self._devices, memory, False),
            "MEMLAB_PHANTOM_QUIET": "1",
            **own,
            **(variables or {}),
            program.VARIABLE: json.dumps(how),
        }
        # It selects among this machine's own GPUs.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        output = os.path.join(folder, "output")
        began = time.monotonic()
        with open(output, "wb") as file:
            process = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            late = self._wait(process)
        self._took = time.monotonic() - began
        ranks, recordings = {}, {}
        for name in os.listdir(folder):
            match = re.fullmatch(r"rank(\d+)\.json", name)
            if match:
                number = int(match[1])
                with open(os.path.join(folder, name)) as file:
                    ranks[number] = json.load(file)
                recordings[number] = os.path.join(folder, f"rank{number}.pickle")
        refused = os.path.join(folder, program.REFUSED)
        wanted = os.path.join(folder, alone.WANTED)
        return Result(
            process.returncode,
            late,
            ranks,
            recordings,
            _tail(output),
            _tail(refused) if os.path.exists(refused) else None,
            int(_tail(wanted)) if os.path.exists(wanted) else None,
        )

    def _wait(self, process):
        """Waits for the process and ends all that it started; returns whether it was
        late.
        """
        late = False
        try:
            try:
                process.wait(self._timeout)
            except subprocess.TimeoutExpired:
                late = True
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            # Its remaining processes, such as loaders' workers, are in its session.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        return late


def _is_the_answer(result):
    """Whether what ended the RESULT of a rank is the answer, or would end others too."""
    return (
        result.late
        or result.out_of_memory
        or (result.failed and not result.usable)
        or not all(rank["joined"] for rank in result.ranks.values())
    )


def _answering(done):
    """The first of the ranks DONE whose end is the answer; None: none."""
    return next((rank for rank in done if _is_the_answer(done[rank])), None)


def _layout(done):
    """What the ranks of DONE told of their groups."""
    ranks = [rank for result in done.values() for rank in result.ranks.values()]
    told = [rank["layout"] for rank in ranks if rank["layout"] is not None]
    return {
        kind: [item for layout in told for item in layout[kind]]
        for kind in ("stages", "meshes")
    }


def _together(done, reasons):
    """The Result of those ranks that have REASONS and ran alone; DONE: rank -> its Result."""
    done = {rank: done[rank] for rank in sorted(reasons) if rank in done}
    reasons = {rank: reasons[rank] for rank in done}
    worst = next((r for r in done.values() if r.status), next(iter(done.values())))
    return dataclasses.replace(
        worst,
        late=any(result.late for result in done.values()),
        ranks={n: figures for r in done.values() for n, figures in r.ranks.items()},
        recordings={n: path for r in done.values() for n, path in r.recordings.items()},
        alone=done,
        reasons=reasons,
    )


def _tail(path):
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - (64 << 10)))
        text = file.read().decode(errors="backslashreplace")
    lines = text.splitlines()[-_TAIL_LINES:]
    return "\n".join(wording.escape(line.expandtabs()) for line in lines)
