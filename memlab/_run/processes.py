"""`memlab run`'s own process and those that its program starts: their final numbers,
and one summary of all.

_run/children.py has them recorded.
"""

import atexit
import multiprocessing
import multiprocessing.util
import os
import sys
import time

from memlab._errors import Error
from memlab._files import load, merged
from memlab._files import names as _names
from memlab._report import peaks
from memlab._run import children
from memlab._run import telling as _telling
from memlab._text import terminal, wording


class Processes:
    """The processes of one run.

    snapshot: this process's recording, which waits for CUDA.  outputs: its
    results.Names, whose rank becomes this process's.  recording: for each child, two of
    results.start()'s arguments.  write: writes this process's results, and returns as
    results.write_results().  telling: a Telling.  note: words the report of commands.

    If the list of the others cannot be read, that is reported, and the summary has only
    this process.
    """

    def __init__(self, snapshot, outputs, recording, write, telling, note):
        self._snapshot = snapshot
        self._outputs = outputs
        self._write = write
        self._telling = telling
        self._note = note
        self._pid = os.getpid()
        self._result = None, []  # of results.write_results()
        self._written = False
        self._numbered = False
        self._waits = False  # the rest waits for the end of the others
        self._arrived = True
        self._family = self._new_family(recording)
        if self._family is not None:
            # Before the program's own handlers: called last.
            atexit.register(self._at_exit)
            self._family.join(self._cuda_ready)

    def _new_family(self, recording):
        outputs = self._outputs
        first = int(outputs.rank)
        # Where a launcher gave it, other runs have the numbers between.
        stride = max(_names.ranks()["world_size"], 1) if _names.launched() else 1
        family = children.Family(
            {
                "folder": outputs.folder,
                "program": outputs.program,
                "start": outputs.start,
                "register": outputs.hidden_path(".processes"),
                "id": f"{self._pid} {time.time_ns()}",
                "first": first,
                "stride": stride,
                "recording": recording,
            }
        )
        try:
            family.register.begin(first)
        except OSError as error:
            terminal.say(
                f"memlab: processes that the program starts are not recorded: {error}",
                sys.stderr,
            )
            return None
        return family

    def _cuda_ready(self):
        """Runs inside torch's own initialisation, here or in a process forked from this
        one.
        """
        if os.getpid() != self._pid:
            children.cuda_ready()
            return
        self._take_number()

    def _give_up(self, error):
        """From here on, the other processes are unknown, because of ERROR."""
        self._family = None
        terminal.say(
            f"memlab: what other processes recorded is not told: {error}", sys.stderr
        )

    def _take_number(self):
        """From here on, no other process may have this one's number."""
        if self._numbered or self._family is None:
            return
        self._numbered = True
        outputs, family = self._outputs, self._family
        before = int(outputs.rank)
        try:
            number = family.register.take(0, before, family.numbers(), None)["number"]
            outputs.rank = str(number)
            if number != before and outputs.events is not None:
                outputs.events = outputs.path(".mlab")
                os.rename(family.names(before).hidden_path(".mlab"), outputs.events)
        except Exception as error:
            self._give_up(error)

    def _begun(self):
        return self._numbered or not self._snapshot.waiting

    def _has_memory(self):
        """Whether this process has used a GPU beyond queries."""
        if not self._begun():
            return False
        try:
            return bool(peaks.devices(self._snapshot.stop().data()))
        except (Error, MemoryError):
            # The writer reports the reason.
            return True

    def _write_own(self):
        if not self._written:
            self._written = True
            self._take_number()
            self._result = self._write()

    def _known(self):
        """The facts about each process, this one first; empty if unreadable."""
        if self._family is None:
            return []
        try:
            return self._family.register.entries()
        except (Error, OSError) as error:
            self._give_up(error)
            return []

    def _others(self):
        """The facts about each other recorded process."""
        return [e for e in self._known() if e["key"] != 0 and "failed" not in e]

    def end(self):
        """At the program's end; returns whether its report was written."""
        if self._has_memory():
            self._write_own()
        others = self._others()
        if self._family is None or not (others or multiprocessing.active_children()):
            return self._end_alone()
        # The other processes end with the interpreter, after the program's exit
        # handlers.  These run here, so that the status can follow from them.
        self._waits = True
        atexit._run_exitfuncs()
        return self._arrived

    def _at_exit(self):
        if not self._waits or os.getpid() != self._pid:
            return
        self._waits = False
        multiprocessing.util._exit_function()
        try:
            others = self._others()
            self._arrived = self._end_together(others) if others else self._end_alone()
        except (Error, OSError, ValueError, MemoryError) as error:
            self._arrived = False
            terminal.say(f"memlab: no summary of the processes: {error}", sys.stderr)

    def _end_alone(self):
        self._write_own()
        commands = self._forget()
        arrived = self._telling.result(self._result, self._outputs)
        self._tell_of(commands)
        return arrived

    def _end_together(self, others):
        others = [entry for entry in others if not self._drop_empty(entry)]
        own = []
        if self._has_memory() or not others:
            self._write_own()
            own = self._known()[:1]
        else:
            self._drop()
        if self._family is None:
            return self._end_alone()
        family = self._family
        entries = self._settle(own + others)
        commands = self._forget()
        summary = _Summary(family, self._outputs, self._result, entries)
        summary.tell(self._telling)
        self._tell_of(commands)
        return bool(others) or self._result[0] is not None

    def _drop_empty(self, entry):
        """Whether the process of ENTRY, of no group of ranks, recorded nothing until its
        end: a forked worker that asked about the GPU, say.  Then its file goes.
        """
        path = self._family.names(entry["number"]).path(".mlab")
        if entry["rank"] is not None or entry.get("written") or not entry.get("events", True):
            return False
        try:
            recording = load.read_recording(path, quiet=True)
            writes = any(rank["state"] == "recording" for rank in recording.ranks())
            if writes or _holds(recording):
                return False
            os.unlink(path)
        except (Error, OSError, ValueError):
            return False  # the summary says what is wrong
        return True

    def terminated(self):
        """When a signal ends this process; the others may continue."""
        # The most urgent work comes first.
        if self._has_memory():
            self._write_own()
        others = self._others()
        if not others:
            self._write_own()
            self._forget()
        elif not self._written:
            self._drop()
        for entry in others:
            names = self._family.names(entry["number"])
            text = f"memlab: process {entry['pid']} is recorded in {names.path('.mlab')}\n"
            os.write(2, text.encode("utf-8", "backslashreplace"))

    def _drop(self):
        """This process has recorded nothing, but others have."""
        self._snapshot.stop()
        known = self._known()
        if self._outputs.events is not None and known:
            names = self._family.names(self._outputs.rank)
            given = known[0]["number"] is None
            os.unlink(names.hidden_path(".mlab") if given else names.path(".mlab"))

    def _forget(self):
        """Ends the list; returns its commands."""
        if self._family is None:
            return []
        try:
            commands = self._family.register.commands()
            self._family.register.end()
        except (Error, OSError) as error:
            self._give_up(error)
            return []
        return commands

    def _tell_of(self, commands):
        if commands:
            self._telling.say(self._note(commands))

    # ---- Numbers ----

    def _settle(self, entries):
        """Gives each process of ENTRIES its rank as its number, if the rank became
        known too late.  The others get the lowest free numbers.  Returns them in the
        order of their numbers.
        """
        settled = {}
        for entry in entries:
            if entry["rank"] is not None:
                settled.setdefault(entry["rank"], entry)
        for entry in sorted(entries, key=lambda entry: entry["number"]):
            if settled.get(entry["rank"]) is not entry:
                free = (n for n in self._family.numbers() if n not in settled)
                settled[next(free)] = entry
        moves = []
        for number, entry in settled.items():
            if entry["key"] == 0:
                self._outputs.rank = str(number)
            if entry["number"] != number:
                names = self._family.names(entry["number"]), self._family.names(number)
                moves += zip(*(n.all() for n in names))
                entry["number"] = number
        _rename(moves)
        return [settled[number] for number in sorted(settled)]


class _Summary:
    """The summary of the processes of ENTRIES.

    own: the result of this process, which has the key 0.
    """

    def __init__(self, family, outputs, own, entries):
        self._family = family
        self._outputs = outputs
        self._own, written = own
        self._entries = entries
        for entry in entries:
            if entry["key"] == 0:
                entry["written"] = [label for label, _ in written]
                entry["events"] = outputs.events is not None

    def tell(self, telling):
        """Writes it by TELLING, for each run that the program made."""
        for some in _by_run(self._entries):
            lines = [*self._files(some)]
            try:
                telling.recording(self._read(some), self._outputs, lines)
            except (Error, OSError, ValueError) as error:
                telling.say("\n".join([f"memlab: no summary: {error}", *lines]))

    def _read(self, entries):
        """The recordings of ENTRIES, merged."""
        if len(entries) == 1 and entries[0]["key"] == 0 and self._own is not None:
            return self._own
        return merged.read_all([self._recording(entry) for entry in entries], quiet=True)

    def _labels(self, entry):
        """The labels of the files that the process wrote in this run."""
        events = ["Events"] if entry.get("events", True) else []
        return [*events, *entry.get("written", ())]

    def _recording(self, entry):
        """A process's file with the most events."""
        labels = self._labels(entry)
        paths = self._family.names(entry["number"]).by_label()
        for label in ("Events", "Snapshot"):
            if label in labels:
                return paths[label]
        raise Error(f"process {entry['pid']} could write no recording")

    def _files(self, entries):
        """Lines on the files of ENTRIES; one line for those with the same files."""
        alike = {}
        for entry in entries:
            key = frozenset(self._labels(entry)), "written" in entry
            alike.setdefault(key, []).append(entry)
        for (labels, ended), some in alike.items():
            numbers = [entry["number"] for entry in some]
            if not labels:
                yield f"Nothing could be written of {_who(some)}."
                continue
            if not ended:
                yield f"No report: {_who(some)} ended by a signal or by os._exit()."
            if len(numbers) == 1:
                yield from _telling.files(self._family.names(numbers[0]), labels)
            else:
                yield from _telling.files_of_ranks(self._outputs, labels, numbers)


def _holds(recording):
    """Whether RECORDING has memory, or ran out of it: its end alone is an event."""
    return any(
        recording.peak(i)["peak"]["reserved_bytes"] or recording.oom(i) is not None
        for i in peaks.devices(recording)
    )


def _who(entries):
    """The processes of ENTRIES for people: only those of a group are ranks."""
    ranks = all(entry["rank"] is not None for entry in entries)
    kind = ("rank", "ranks") if ranks else ("process", "processes")
    numbers = [entry["number"] for entry in entries]
    return f"{kind[len(numbers) > 1]} {wording.numbers(numbers)}"


def _by_run(entries):
    """ENTRIES in lists without repeated ranks: a program may start its ranks again."""
    runs = []
    for entry in entries:
        rank = entry["rank"]
        fitting = (run for run in runs if rank not in [e["rank"] for e in run])
        run = next(fitting, None) if rank is not None else next(iter(runs), None)
        if run is None:
            runs.append([entry])
        else:
            run.append(entry)
    return runs


def _rename(moves):
    """Renames files, some to each other's names."""
    waiting = []
    for old, new in moves:
        folder, name = os.path.split(old)
        between = os.path.join(folder, f".moving-{name}")
        try:
            os.rename(old, between)
        except FileNotFoundError:
            continue
        waiting.append((between, new))
    for between, new in waiting:
        os.rename(between, new)
