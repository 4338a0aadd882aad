"""Out of memory: the recording written at that moment, and its account.

Owns when to write, and what; _report/oom.py has the words.
"""

import gc
import itertools
import os
import shlex
import sys
import threading
import weakref

from memlab import _core
from memlab._errors import Error
from memlab._files import names, words
from memlab._native import bridge
from memlab._record import model_head, training_loop
from memlab._report import oom as account
from memlab._report import peaks
from memlab._report import report as _report
from memlab._text import terminal, wording

# A program that catches the error and retries may fail hundreds of times.  The first
# failures are all written, later ones if their number is a power of two, and the last
# one always.
_WRITTEN_AT_ONCE = 10

# Notes are cut behind so many bytes: a longer command is not told.
_COMMAND_MOST = 1000

_watches = []

# State bytes per trained parameter byte, by torch's classes; SGD's depends on its
# options.
_STATE = {
    **dict.fromkeys(("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta"), 2),
    **dict.fromkeys(("Adagrad", "RMSprop", "Rprop", "Muon"), 1),
}


def _instances(module, name):
    """The program's objects of the class NAME of MODULE, which it may not have imported."""
    if module in sys.modules:
        kind = getattr(sys.modules[module], name)
        for item in gc.get_objects():
            if issubclass(type(item), kind):
                yield item


def _loaders_batch():
    """The batch of the DataLoaders that are being read; None: none is, or they differ."""
    found = set()
    for item in _instances("torch.utils.data.dataloader", "_BaseDataLoaderIter"):
        # A property of the program's own sampler would run its code.
        sampler = vars(item).get("_index_sampler")
        batch = getattr(sampler, "__dict__", {}).get("batch_size")
        if type(batch) is int and batch > 1:
            found.add(batch)
    return found.pop() if len(found) == 1 else None


def _note_program():
    """Notes the program, its arguments, and the batch: which of these it is, or a DataLoader's,
    unless the model takes parts of that.
    """
    found = words.batch_argument(sys.argv[1:])
    if found is None and _core.noting():
        of_loader = _loaders_batch()
        found = of_loader and ("", of_loader)
    if found is not None and ("torch" not in sys.modules or training_loop.takes(found[1])):
        _core.note_before_oom("batch", *found)
    # A module that was run by its name has one.
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    program = ["-m", spec.name.removesuffix(".__main__")] if spec else sys.argv[:1]
    command = shlex.join(program + words.without_secrets(sys.argv[1:]))
    if any(program) and len(command) <= _COMMAND_MOST:
        _core.note_before_oom("program", command)


def _note_loop():
    """Notes what of a pass lives on into the next, and the model's head, which no event tells
    before there is one.
    """
    if _core.noting():
        _core.note_before_oom("loop", "", *training_loop.facts())
        head = model_head.facts() if "torch" in sys.modules else None
        if head is not None:
            _core.note_before_oom("head", "", *head)


def _note_optimizers():
    """Notes the future state of the program's optimizers, which no event tells before a
    first step.
    """
    if not _core.noting():
        return
    for item in _instances("torch.optim.optimizer", "Optimizer"):
        classes = [c.__name__ for c in type(item).__mro__]
        name = next((n for n in classes if n in _STATE or n == "SGD"), None)
        if name is None:
            continue
        trained = state = 0
        for group in item.param_groups:
            count = sum(
                p.numel() * p.element_size()
                for p in group["params"]
                if p.is_cuda and p.requires_grad
            )
            trained += count
            state += count * _STATE.get(name, 1 if group.get("momentum") else 0)
        _core.note_before_oom("optimizer", type(item).__name__, state, trained)


def _on_out_of_memory(device, wanted, total, free):
    """torch's observer: called on the allocating thread, without the allocator's lock,
    before torch raises its own error, which must not be replaced.
    """
    for watch in list(_watches):
        watch.happened()


def rank() -> str:
    """The number of this process in a distributed run; "0" if alone."""
    return str(names.ranks()["rank"])


class Paths:
    """The paths of the recordings of MemorySnapshot(on_oom=WHERE)."""

    def __init__(self, where):
        where = os.fspath(where)
        if not isinstance(where, str) or not where:
            raise ValueError(f"on_oom must be a path, not {where!r}")
        is_file = where.endswith((".pickle", ".pkl"))
        self._template = (
            where if is_file else os.path.join(where, "rank{rank}_oom.pickle")
        )
        # The program may change its working directory.
        self._template = os.path.abspath(self._template)
        folder = os.path.dirname(self._template)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise Error(
                f"cannot write to {folder!r}: {error.strerror}; give on_oom another folder"
            ) from None

    def __call__(self, last):
        number = rank()
        path = self._template.replace("{rank}", number)
        stem, ending = os.path.splitext(path)
        if "{rank}" not in self._template and number != "0":
            # With one path for all, other ranks must not overwrite the first one's.
            stem += f"_rank{number}"
        stem += "_last" if last else ""
        return stem + ending, stem + ".txt"


class Watch:
    """Writes the first and the last out of memory of one recording.

    A subclass may write other files.

    snapshot: a memlab.MemorySnapshot, which may be garbage-collected.  paths: a
    function of whether it is the last, not the first; it returns the paths of the
    recording and of its report.  start: as in report.text.
    """

    def __init__(self, snapshot, paths, start=None):
        self._snapshot = weakref.ref(snapshot)
        self._paths = paths
        self._start = start
        self._pid = os.getpid()
        self._writing = threading.Lock()
        self._numbers = itertools.count(1)
        self._count = 0
        self._pending = False
        self._failures = 0
        self._last_written = False

    def begin(self) -> None:
        """Starts watching."""
        _watches[:] = [w for w in _watches if w._alive()]
        _watches.append(self)
        bridge.load().set_oom_callback(_on_out_of_memory)

    def end(self, recording=None) -> None:
        """Stops watching; writes the last from RECORDING, if not yet written."""
        if self in _watches:
            _watches.remove(self)
        if self._pid != os.getpid():
            return
        if self._pending and recording is not None:
            self._pending = False
            self._write(recording, self._count)
        if self._count > 1:
            path = self._shown(self._paths(True)[0])
            written = f"; the last is in {path}" if self._last_written else ""
            failed = f"; {self._failures} not written" if self._failures else ""
            self._say(f"memlab: {self._count} times out of memory{written}{failed}")

    def _alive(self):
        return self._pid == os.getpid() and self._snapshot() is not None

    def happened(self) -> None:
        """One more out of memory; no failure here reaches the program."""
        try:
            if not self._alive():
                return
            number = self._count = next(self._numbers)
            if number == 1:
                self._note()
            power = number & (number - 1) == 0
            if number > _WRITTEN_AT_ONCE and not power:
                self._pending = True
                return
            # Another thread may be out of memory at the same time: the writing thread
            # also writes for the others, which continue at once.
            self._pending = True
            while self._pending and self._writing.acquire(blocking=False):
                try:
                    self._pending = False
                    self._write_now()
                finally:
                    self._writing.release()
        except Exception as error:
            self._failed(error)

    def _note(self):
        """Notes facts that no event tells; the account is written even without them."""
        try:
            _note_optimizers()
            _note_program()
            _note_loop()
        except Exception as error:
            self._say(f"memlab: the optimizers were not noted: {error}")

    def _write_now(self):
        snapshot = self._snapshot()
        if snapshot is not None:
            # Before the recording is read: later ones are not in it.
            number = self._count
            self._write(snapshot.data(), number)

    def _write(self, recording, number):
        last = number > 1
        try:
            written = self._write_files(recording, number, last)
        except Exception as error:
            self._last_written = False
            self._failed(error)
            return
        self._last_written = last
        if number == 1:
            paths = " and ".join(map(self._shown, written))
            self._say(f"memlab: out of memory; wrote {paths}")

    def _write_files(self, recording, number, last):
        """Writes the files of out of memory NUMBER; returns the paths to report."""
        path, report = self._paths(last)
        try:
            recording.write_pickle(path, True)
        finally:
            # There may be room for one of the files only.
            text = report_text(recording, number, self._start)
            _core.write_file(report, text.encode("utf-8", "backslashreplace"))
        return path, report

    def _failed(self, error):
        self._failures += 1
        if self._failures == 1:
            self._say(
                f"memlab: out of memory; the recording could not be written: {error}"
            )

    def _shown(self, path):
        return wording.shorten(path, self._start)

    @staticmethod
    def _say(text):
        try:
            terminal.say(text, sys.stderr)
        except Exception:
            # The program's own stderr fails.
            pass


# ---- In words ----


def report_text(recording, number=1, start=None) -> str:
    """The report of an out of memory: its account, then the peak before it.

    number: its number in this run.
    """
    parts = []
    if number > 1:
        parts.append(f"Out of memory number {number} of this run.\n")
    parts += [account.text(recording, i, start) for i in peaks.devices(recording)]
    # No second pass over all events: the failed thread waits.
    parts.append(_report.text(recording, start=start, oom=False, functions=None))
    return "\n".join(part for part in parts if part)
