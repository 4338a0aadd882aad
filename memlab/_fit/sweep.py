"""A program under several settings and GPUs: memlab.sweep and `memlab fit --table`.

Owns which settings are tried, by whom, and the file of what was found.  A range is searched
for its largest value that fits; every other setting and GPU is a row of its own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import sys

from memlab import phantom
from memlab._errors import Error
from memlab._fit import condition, folder, needs, vary, world
from memlab._fit.fit import TIMEOUT_SECONDS
from memlab._fit.run import BYTES, ranks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memlab._answers import Sweep
    from memlab._core import _Path

_PR_SET_PDEATHSIG = 1
# The total if none, or all, of the rows for experts come.
_RANGE = "total_range_bytes"
# For workers to end what they run when a sweep is given up.
_GRACE_SECONDS = 10


def sweep(
    script: _Path,
    args: Iterable[str] = (),
    *,
    gpus: Iterable[str] = (phantom.DEFAULT_GPU,),
    vary: Iterable[str] = (),
    where: Iterable[str] = (),
    prices: Mapping[str, float] | None = None,
    world_size: int | None = None,
    nodes: int | None = None,
    ranks: Iterable[int] | None = None,
    steps: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
    answers: _Path | None = None,
    executor: concurrent.futures.Executor | None = None,
) -> Sweep:
    """Whether a training program fits, for each of several settings and GPUs.

    script, args, world_size, nodes, ranks, steps, timeout (seconds, of one run): as for
    memlab.fit.  gpus: names from `memlab phantom --list`.  vary: settings, each as
    "tp=1,2,4", whose values are all tried, and at most one as "batch_size=1..64", of which
    the largest that fits is searched: a value above one that does not fit is not tried.
    where: conditions on the settings, world_size and nodes, as "tp * pp == 8"; what does not
    meet them is not tried.  prices: what an hour of one GPU costs, by its name.
    answers: a file to which each try is written when it is done, and from which tries that
    are there already are read; those that failed are tried again.  executor: runs the tries,
    each in one call; its workers need memlab, the program and the same working directory.
    None: one after the other.

    Returns a dict, described in docs/LABORATORY.md: rows has one for each GPU and
    combination of settings.

    Raises ValueError for an invalid argument; memlab.Error if the executor lost a worker, or
    `answers` has other lines; FileNotFoundError if the phantom device was not built.  A
    program that fails is an error of its row.
    """
    words = [os.fspath(script), *args]
    around = world.of(world_size, nodes, ranks, words)
    return sweep_of(
        words, list(gpus), list(vary), around, steps, timeout, answers, executor,
        where=where, prices=prices,
    )  # fmt: skip


def sweep_of(
    words,
    gpus,
    varied,
    around,
    steps,
    timeout,
    answers=None,
    executor=None,
    devices=None,
    memory=None,
    tell: Callable[[str], None] | None = None,
    where=(),
    prices=None,
) -> Sweep:
    """As sweep(), for a command's WORDS in the world AROUND; TELL(text) is called with what
    was tried.
    """
    memory = phantom.environment(None, devices, memory)["MEMLAB_PHANTOM_MEMORY"]
    memory = int(memory) if memory else None
    how = memory, devices, around and dataclasses.astuple(around), steps, timeout
    prices = dict(zip(_known(prices or {}), (prices or {}).values()))
    rows = [
        _Row(words, gpu, how, *chosen)
        for gpu in _known(gpus)
        for chosen in settings(varied, where, around)
    ]
    # What fits, or does not, on the GPU with the most memory may tell of the others.
    in_order = sorted(rows, key=_Row.capacity, reverse=True)
    with _Answers(answers) as found:

        def finish(row, result):
            found.add(row.question(), result)
            if tell is not None:
                tell(_said(row, result))
            row.take(result)

        if executor is None:
            for row in in_order:
                while _is_left(row, found):
                    finish(row, try_out(row.question()))
        else:
            _try_all(in_order, found, executor, finish)
        found_rows = [row.answer() for row in rows]
        count = around.size if around else devices or ranks_of(words) or 1
        return {
            "program": os.path.basename(_program(words)),
            "rows": found_rows,
            "cheapest": _price(found_rows, prices, count),
            "tried": found.added,
            "reused": found.reused,
            "followed": found.followed,
        }


def try_out(question) -> dict:
    """The figures of one run of a program; QUESTION: of _Row.  For an executor."""
    from memlab._fit.answer import Asked, tells_parts
    from memlab._fit.run import Command

    words, variables, gpu, memory, devices, around, steps, timeout = question
    if around is not None:
        around = world.World(*around)
    try:
        asked = Asked(words, gpu, devices, memory, steps, timeout, None, around)
        with asked.runs:
            command = Command(words)
            answer, run = asked.try_out(command, variables)
            ends = None
            if answer["fits"] and around is not None:
                ends = asked.rows(answer, run, command, variables, ("none", "all"))
            others = [
                item["total_bytes"] for item in answer["devices"]
                if ends and not tells_parts(run, item)
            ]  # fmt: skip
    except Error as error:
        return _failed(error)
    fullest = max(answer["devices"], key=lambda item: item["total_bytes"])
    # The figures of a run that ran out of memory do not show its need.
    figures = {key: fullest[key] if answer["fits"] else None for key in BYTES}
    return {
        "fits": answer["fits"],
        **figures,
        # Of the fullest device, whichever it then is.
        _RANGE: ends and [max([*others, row["total_bytes"]]) for row in ends],
        "rank": fullest["rank"],
        "error": None,
    }


def _failed(error):
    return {"fits": False, **dict.fromkeys((*BYTES, _RANGE, "rank")), "error": str(error)}


@contextlib.contextmanager
def workers(count):
    """An executor of COUNT processes, which end with this one."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    executor = concurrent.futures.ProcessPoolExecutor(count, context, _begin)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        workers = set(multiprocessing.active_children()) - before
        for process in workers:
            process.terminate()
        for process in workers:
            process.join(_GRACE_SECONDS)
        # Those of a worker that was lost.
        folder.remove_left()
        raise
    executor.shutdown()


def _begin():
    """In a worker: a signal ends it, its run and the run's files, also where the process
    that waits for it has ended.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class _Row:
    """A GPU and a choice of settings, and what was found for them."""

    def __init__(self, words, gpu, how, chosen, ranged, meets):
        self.gpu, self._how = gpu, how
        self._variables, self._settings = {}, dict(chosen)
        self._range, self._highest = ranged, None
        for name, value in chosen:
            words, variables = vary.put(words, name, value)
            self._variables |= variables
        self._words = words
        if ranged is None:
            self._search = _once()
        else:
            # Whether there is a place for it.
            vary.put(words, ranged.name, ranged.lowest)
            self._search = vary.searching(ranged.values(), meets)
            self._highest = vary.first_that(meets, ranged.values()[::-1])
        self.value = next(self._search)  # to try next; None: nothing more
        self._best = self._error = None

    def question(self):
        """What try_out takes, and the file knows a try by."""
        words, variables = self._words, dict(self._variables)
        if self._range is not None:
            words, more = vary.put(words, self._range.name, self.value)
            variables |= more
        return [list(words), variables, self.gpu, *self._how]

    def capacity(self):
        """The bytes of its GPU's memory."""
        return self._how[0] or phantom.gpus()[self.gpu].total_bytes

    def name(self):
        """The row and its next value, for people."""
        settings = dict(self._settings)
        if self._range is not None:
            settings[self._range.name] = self.value
        return " ".join([self.gpu, *(f"{name}={value}" for name, value in settings.items())])

    def take(self, result):
        """Takes the RESULT of the value that was tried, and chooses the next one."""
        if result["fits"]:
            # Each value that is tried after one that fits is higher, or does not fit.
            self._best = self.value, result
        elif result["error"] is not None and self._error is None:
            self._error = result["error"]
        try:
            self.value = self._search.send(result["fits"])
        except StopIteration:
            self.value = None

    def answer(self):
        capacity = self.capacity()
        largest, result = self._best or (None, dict.fromkeys((*BYTES, _RANGE, "rank")))
        total = result["total_bytes"]
        return {
            "gpu": self.gpu,
            "settings": self._settings,
            "vary": None if self._range is None else self._range.name,
            "largest": largest if self._range is not None else None,
            "highest": self._highest,
            "fits": self._best is not None,
            **{key: result[key] for key in (*BYTES, "rank")},
            # Files of earlier versions have none.
            _RANGE: result.get(_RANGE),
            "capacity_bytes": capacity,
            "headroom_bytes": None if total is None else capacity - total,
            "price": None,
            "error": self._error,
        }


def _once():
    yield True


def _is_left(row, found):
    """Whether something of ROW is to be tried, after it took what FOUND has."""
    while row.value is not None:
        result = found.get(row.question())
        if result is None:
            return True
        row.take(result)
    return False


def _try_all(rows, found, executor, finish):
    """Tries what is left of ROWS in EXECUTOR; calls FINISH(row, result) after each."""
    waiting = {}
    held = {}  # a need that is being tried -> rows that it may tell of

    def go_on(row):
        if not _is_left(row, found):
            return
        need = needs.of(row.question())
        if need in held:
            held[need].append(row)
            return
        if need is not None:
            held[need] = []
        waiting[executor.submit(try_out, row.question())] = row, need

    for row in rows:
        go_on(row)
    while waiting:
        done = next(concurrent.futures.as_completed(waiting))
        row, need = waiting.pop(done)
        try:
            result = done.result()
        except concurrent.futures.BrokenExecutor:
            raise Error(
                "a worker of the executor ended; with a file of answers, the next sweep "
                "goes on from what was tried"
            ) from None
        except Error as error:
            # Of this try alone, as that the executor could not run it.
            result = _failed(error)
        finish(row, result)
        for each in (row, *held.pop(need, ())):
            go_on(each)


def _known(gpus):
    """The names of GPUS.  Raises ValueError."""
    return [phantom.environment(gpu)["MEMLAB_PHANTOM_GPU"] for gpu in gpus]


def settings(varied, where=(), around=None):
    """(choices, range or None, which of its values are searched) of each row of the texts
    VARIED that meets the conditions WHERE in the world AROUND.  The last is a function of a
    value, None: all are.  Raises ValueError.
    """
    parsed = [vary.parse_any(text) for text in varied]
    ranges = [item for item in parsed if isinstance(item, vary.Vary)]
    if len(ranges) > 1:
        raise ValueError(
            f"{ranges[0].name} and {ranges[1].name} are ranges; of one the largest value is "
            f"searched: give the values of the other, as {ranges[1].name}=1,2,4"
        )
    names = [item.name for item in parsed]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is varied twice")
    fixed = {"world_size": around.size, "nodes": around.nodes} if around else {}
    conditions = [condition.Condition(text, names, fixed) for text in where]
    choices = [item for item in parsed if isinstance(item, vary.Choices)]
    ranged = ranges[0] if ranges else None
    of_range = [item for item in conditions if ranged and item.uses(ranged.name)]
    of_choices = [item for item in conditions if item not in of_range]
    found = []
    for values in itertools.product(*(item.values for item in choices)):
        chosen = [(item.name, value) for item, value in zip(choices, values)]
        if not _meets(of_choices, dict(chosen)):
            continue
        meets = None
        if of_range:
            meets = functools.partial(_meets_with, of_range, dict(chosen), ranged.name)
        if ranged is None or vary.first_that(meets, ranged.values()) is not None:
            found.append((chosen, ranged, meets))
    if not found:
        raise ValueError(f"no values meet {' and '.join(map(repr, where))}")
    return found


def _meets(conditions, chosen):
    return all(item.holds(chosen) for item in conditions)


def _meets_with(conditions, chosen, name, value):
    return _meets(conditions, {**chosen, name: value})


def _price(rows, prices, count):
    """Sets what an hour of COUNT GPUs of each of ROWS costs; returns the number of the
    cheapest row that fits, of equal ones that with the largest value, then the most left.
    """
    for row in rows:
        if row["gpu"] in prices:
            row["price"] = prices[row["gpu"]] * count
    known = [i for i, row in enumerate(rows) if row["fits"] and row["price"] is not None]

    def order(i):
        row = rows[i]
        return row["price"], -(row["largest"] or 0), -row["headroom_bytes"]

    return min(known, key=order, default=None)


def _program(words):
    return next((word for word in words if word.endswith(".py")), words[0])


def _said(row, result):
    if result["error"] is not None:
        return f"{row.name()} failed"
    return f"{row.name()} {'fits' if result['fits'] else 'does not fit'}"


class _Answers:
    """The file of tries that are done, a line of JSON each; path None: none is kept."""

    def __init__(self, path):
        self._path, self._file = path, None
        self._known = {}
        self._programs = {}  # path -> digest
        self._needs = needs.Needs()
        self.added = self.reused = self.followed = 0

    def __enter__(self):
        if self._path is None:
            return self
        if os.path.isfile(self._path):
            self._read()
        elif os.path.exists(self._path):
            raise Error(f"{self._path} is no regular file; give one, which need not be there yet")
        self._file = open(self._path, "a")
        return self

    def __exit__(self, *exception):
        if self._file is not None:
            self._file.close()

    def _read(self):
        with open(self._path, "rb+") as file:
            lines = file.read().splitlines(keepends=True)
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    # Its writer was ended in the midst of it.
                    file.truncate(sum(map(len, lines[:-1])))
                    return
                try:
                    entry = json.loads(line)
                    self._known[entry["key"]] = entry["result"]
                except (ValueError, KeyError, TypeError):
                    raise Error(
                        f"{self._path}:{number} is no try of a sweep; give another file"
                    ) from None

    def get(self, question):
        """The result of QUESTION, if there is one, or if it follows from others."""
        result = self._known.get(self._key(question))
        if result is not None:
            self.reused += 1
            self._needs.add(question, result)
            return result
        result = self._needs.find(question)
        self.followed += result is not None
        return result

    def add(self, question, result):
        self.added += 1
        self._needs.add(question, result)
        # What failed may do better another time, for example with a longer time limit.
        if self._file is not None and result["error"] is None:
            key = self._key(question)
            entry = {"key": key, "question": question, "result": result}
            try:
                self._file.write(json.dumps(entry) + "\n")
                self._file.flush()
            except OSError as error:
                self._file = None  # to close it would fail again
                raise Error(
                    f"{self._path}: a try was not written: {error.strerror}; make room for it: "
                    "the same command goes on from those that were"
                ) from None

    def _key(self, question):
        """Of the question and the program's text: a changed program is tried again."""
        path = _program(question[0])
        if path not in self._programs:
            try:
                with open(path, "rb") as file:
                    self._programs[path] = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                self._programs[path] = ""
        # The time limit does not change what is found.
        text = json.dumps([question[:-1], self._programs[path]])
        return hashlib.sha256(text.encode()).hexdigest()
