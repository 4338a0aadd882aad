"""Processes started by a program under `memlab run`: which are recorded, under which
number, and what the end's summary knows about each.

A child is recorded from its initialisation of CUDA, so a process without GPU leaves no
file.  The program is not changed, and its environment on the phantom device alone, by
_run/values.py.  The data that multiprocessing sends to a new process bring memlab along; a
forked process has memlab already.
_run/results.py writes the files of a recording.
"""

import atexit
import contextlib
import errno
import fcntl
import itertools
import json
import multiprocessing.spawn
import multiprocessing.util
import os
import sys
import time

from memlab._errors import Error
from memlab._files import names as _names
from memlab._native.importing import when_imported
from memlab._record import oom
from memlab._report import peaks
from memlab._run import commands as _commands
from memlab._run import outside, results
from memlab._text import terminal

# multiprocessing runs this at a process's end, after everything with a priority.
_LAST = -1_000_000
# How long a process waits for its number while others take theirs.
_PATIENCE_SECONDS = 10

_family = None  # this process's


class Family:
    """A run and the processes that its program starts.

    plan: a dict of plain values, known to each of them: folder, program, start: as
    those of results.Names.  register: the path of the list of recorded processes; id:
    its first line. first, stride: the available numbers.  recording: two of
    results.start()'s arguments.
    """

    def __init__(self, plan):
        self.plan = plan
        self.register = Register(plan["register"], plan["id"])

    def join(self, cuda_ready):
        """From now on, CUDA_READY() is called when this process, or one forked from it,
        has initialised CUDA. Processes started by multiprocessing join too.
        """
        global _family
        _family = self
        when_imported("torch.cuda", lambda cuda: cuda._lazy_call(cuda_ready))
        _bring_along(self.plan)
        _commands.watch(self._command)

    def _command(self, words):
        if _commands.recording(words, []) is not None:
            self.register.add(command=words)

    def numbers(self):
        """The available numbers, lowest first."""
        return itertools.count(self.plan["first"], self.plan["stride"])

    def give(self, number):
        """Renames the file of the idle process with that NUMBER."""
        names = self.names(number)
        try:
            os.rename(names.path(".mlab"), names.hidden_path(".mlab"))
        except FileNotFoundError:
            pass

    def names(self, number):
        """The results' paths of the process with that NUMBER."""
        plan = self.plan
        return results.Names(plan["folder"], plan["program"], plan["start"], str(number))


def known_rank():
    """This process's rank among several; None if unknown."""
    known = _names.ranks()
    return known["rank"] if known["world_size"] > 1 else None


# ---- The list of those that are recorded ----


class Register:
    """A file with a line of JSON for each fact about a process.

    `key` identifies a process, from 0, which is the run's own.  A process has a `pid`,
    a unique `number`, and a `rank`, if known.  It may be `idle`, ready to give its
    number away, or `failed`. `events` is False if it has no file of its events.
    `written` has the labels of the files written at its end.
    """

    def __init__(self, path, run_id):
        self.path = path
        self._id = run_id

    def begin(self, number):
        """Begins the list, for this run alone, with this process.  Others may take its
        number until it is recorded.
        """
        file = results.open_own(self.path)
        try:
            os.ftruncate(file, 0)
            _put(file, {"id": self._id})
            _put(file, {**_this(), "key": 0, "number": number, "idle": True})
        finally:
            os.close(file)

    def end(self):
        """The run has ended."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass

    def take(self, key, wanted, numbers, give):
        """The entry of this process, with the number WANTED, or else the first of
        NUMBERS that is free.

        key: its own, None for a new one.  GIVE(number) is called if an idle process had
        that number.
        """
        with self._held() as file:
            entries = self.entries()
            others = {e["number"]: e for e in entries if e["key"] != key}
            taken = {number for number, e in others.items() if not e.get("idle")}
            if wanted is None or wanted in taken:
                wanted = next(number for number in numbers if number not in taken)
            if wanted in others:
                give(wanted)
                _put(file, {"key": others[wanted]["key"], "number": None})
            key = len(entries) if key is None else key
            entry = {**_this(), "key": key, "number": wanted, "idle": False}
            _put(file, entry)
        return entry

    def add(self, **what):
        """Adds a fact: about the process with that `key`, or a `command`."""
        with self._held() as file:
            _put(file, what)

    def entries(self):
        """A dict for each process, in the order of their start."""
        found = {}
        for line in self._lines():
            if "key" in line:
                found.setdefault(line["key"], {}).update(line)
        return list(found.values())

    def commands(self):
        """The commands of other processes, lists of words, in order."""
        return [line["command"] for line in self._lines() if "command" in line]

    def _lines(self):
        try:
            with open(self.path, "rb") as file:
                lines = [_parsed(line) for line in file.read().split(b"\n") if line]
        except FileNotFoundError:
            lines = []
        if lines[:1] != [{"id": self._id}]:
            raise Error("the run that it was a part of has ended")
        return [line for line in lines[1:] if isinstance(line, dict)]

    @contextlib.contextmanager
    def _held(self):
        """The open file, locked against other writers."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.open(self.path, flags)
        except FileNotFoundError:
            raise Error("the run that it was a part of has ended") from None
        try:
            until = time.monotonic() + _PATIENCE_SECONDS
            while not _locked(file):
                if time.monotonic() > until:
                    raise Error(f"{self.path} is locked by another process")
                time.sleep(0.001)
            yield file
        finally:
            # Closing is not enough: a process forked meanwhile has it open too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _this():
    return {"pid": os.getpid(), "rank": known_rank()}


def _put(file, line):
    # The line feed comes first: it ends a line that was cut for want of room.
    data = b"\n" + json.dumps(line).encode()
    if os.write(file, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _parsed(line):
    """The value of LINE; None if it was cut."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# ---- Reaching them ----


class _Along:
    """Runs when multiprocessing's data for a new process is unpickled there.  If the
    import fails, the program continues.
    """

    def __init__(self, plan):
        self._plan = plan

    def __reduce__(self):
        folder = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
        text = (
            "import sys\n"
            f"sys.path.append({folder!r})\n"
            "try:\n"
            "    from memlab._run import children\n"
            f"    children.join({self._plan!r})\n"
            "except Exception as error:\n"
            "    print(f'memlab: a process is not recorded: {error}', file=sys.stderr)\n"
            "finally:\n"
            f"    sys.path.remove({folder!r})\n"
        )
        return exec, (text, {})


def _bring_along(plan):
    original = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name):
        return {**original(name), "memlab": _Along(plan)}

    multiprocessing.spawn.get_preparation_data = get_preparation_data


# ---- In a child ----


def join(plan):
    """This process, just begun, joins the run of PLAN."""
    Family(plan).join(cuda_ready)


def cuda_ready():
    """Begins to record this process, inside torch's own initialisation, which no
    failure here may reach.
    """
    try:
        _record(_family)
    except Exception as error:
        terminal.say(
            f"memlab: process {os.getpid()} is not recorded: {error}", sys.stderr
        )


def _record(family):
    register = family.register
    entry = register.take(None, known_rank(), family.numbers(), family.give)
    names = family.names(entry["number"])
    try:
        recording, limits = family.plan["recording"]
        snapshot, events = results.start(recording, names.path(".mlab"), limits)
    except Exception:
        register.add(key=entry["key"], failed=True)
        raise
    if events is None:
        register.add(key=entry["key"], events=False)
    watch = oom.Watch(snapshot, names.oom_paths, names.start)
    watch.begin()
    process = os.getpid()

    def rank_known():
        rank = known_rank()
        if os.getpid() == process and rank is not None:
            snapshot._rank()
            register.add(key=entry["key"], rank=rank)

    def end():
        try:
            # multiprocessing ends the process while it handles the program's error.
            outside.note(sys.exc_info()[1] or getattr(sys, "last_value", None))
            if known_rank() is None and not peaks.devices(snapshot.stop().data()):
                return  # the run drops its file
            _, written = results.write_results(snapshot, names, watch)
            register.add(key=entry["key"], written=[label for label, _ in written])
        except Exception as error:
            terminal.say(
                f"memlab: process {process} is not in the summary: {error}", sys.stderr
            )

    at_end(end)
    if entry["rank"] is None:
        on_group(rank_known)


def at_end(call):
    """Calls CALL() once, at this process's end, before what ends its recordings."""
    process, called = os.getpid(), False

    def end():
        nonlocal called
        if not called and os.getpid() == process:
            called = True
            call()

    multiprocessing.util.Finalize(None, end, exitpriority=_LAST)
    # From CPython 3.13 on finalizers run after the functions of atexit, one of which ends
    # the snapshot; of these the last one comes first.
    atexit.register(end)


def on_group(call):
    """Calls CALL() when this process joins a group of torch.distributed, or leaves it."""
    when_imported(
        "torch.distributed.distributed_c10d", lambda c10d: _on_group(c10d, call)
    )


def _on_group(c10d, call):
    """Calls CALL() when the process joins a group, or leaves it: at the end it may
    already have left. torch has no hook for this.
    """
    original = getattr(c10d, "_update_default_pg", None)
    if original is None:
        return

    def update_default_pg(group):
        original(group)
        try:
            call()
        except Exception as error:
            terminal.say(f"memlab: the rank was not noted: {error}", sys.stderr)

    c10d._update_default_pg = update_default_pg
