"""memlab.leaks(): the lines that leave memory behind in every training step."""

from __future__ import annotations

import linecache
import operator
import os
import sys
import threading

from memlab import _core
from memlab._native import linemaps, sources
from memlab._text import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Leak

# Newest events kept for each device: the most between two calls.
_MAX_ENTRIES = 1 << 18

_under_way = None
_complaints = set()


class _Watch:
    """Its own recording of SOURCE, and the messages so far."""

    def __init__(self, source):
        sources.ensure(source)
        recording = _core.MemorySnapshot()
        recording._begin(source, _MAX_ENTRIES, "alloc", False, True, -1)
        self._leaks = _core.Leaks(recording)
        self._source = source
        self._last = None
        self._said = set()
        self._pid = os.getpid()
        self._answer = []
        self._ending = threading.Lock()
        _name_modules()

    def ends(self, step):
        """The answer after STEP; None if steps begin anew."""
        if os.getpid() != self._pid:
            return []
        if not self._ending.acquire(blocking=False):
            # Another thread is ending the same step.
            return self._answer
        try:
            return self._ends(step)
        finally:
            self._ending.release()

    def _ends(self, step):
        if step == self._last:
            # The step continues: the next call ends it.
            return self._answer
        if self._last is not None and step < self._last:
            return None
        self._last = step
        self._answer, lost = self._leaks.step()
        if any(leak["module"].startswith("<") for leak in self._answer):
            # The module is newer than the last look for names: the next answer has its
            # name.
            _name_modules()
        if lost:
            self._say_once(
                f"memlab: more than {_MAX_ENTRIES} memory events lay between two calls of "
                "memlab.leaks(), which begins to count again"
            )
        for leak in self._answer:
            self._tell(leak)
        return self._answer

    def _say_once(self, text, key=None):
        key = text if key is None else key
        if key not in self._said:
            self._said.add(key)
            terminal.say(text, sys.stderr)

    def _tell(self, leak):
        key = (leak["device"], leak["file"], leak["line"], leak["function"], leak["phase"])
        device = f"cuda:{leak['device']}" if self._source == "cuda" else self._source
        self._say_once(f"memlab: {_sentence(leak, device)}", key)


def _name_modules():
    _core.name_modules(sys.modules["torch"].nn.Module)
    linemaps.take()


def _say(error):
    text = f"memlab: leaks() could not look: {error}"
    if text not in _complaints:
        _complaints.add(text)
        terminal.say(text, sys.stderr)


def _sentence(leak, device):
    from memlab._text.wording import size

    what = "what the backward pass allocates for it" if leak["backward"] else "it"
    code = linecache.getline(leak["file"], leak["line"]).strip()
    place = f"{leak['file']}:{leak['line']}" if leak["file"] else f"a call with {leak['reason']}"
    quoted = f" (`{code}`)" if code else ""
    return (
        f"{place}{quoted} leaks {size(leak['bytes_per_step'])} a step on {device}: in each "
        f"of the last {leak['steps']} steps something of {what} was left that still lives; "
        "memlab.holders(tensor) says who holds a tensor"
    )


def leaks(step: int | None, source: str | None = None) -> list[Leak]:
    """The lines that leave memory behind in every step, most bytes first.

        for step, batch in enumerate(loader):
            train(batch)
            memlab.leaks(step)

    step: the number of the training step, at the same place of the loop each time; None
    ends the recording.  The same number again changes nothing; a lower one begins anew.
    source: "cuda", "cpu", or None for the GPU if there is one; the first call decides.

    The first call begins to record; each later call ends a step.  A line leaks if each
    of the last five or more consecutive steps left a block of it that still lives, and
    that row has grown: none of its steps has lost all of its blocks since the previous
    call.  So these are no leaks: memory made once, such as parameters, optimizer state
    or a copy of the weights; a buffer that each step replaces, even by a larger one;
    gradients, even of several steps; values of the last four steps; and a bounded deque
    of more, once it is full.  Until it is full, it grows and is reported.  A leak in
    every second step is not found.  For allocations of a backward pass, the line is
    that of the forward operation.

    Returns a list of dicts, described in docs/REPORT.md; it is empty while nothing
    grows.  A line's first leak is also reported on stderr.  Failures raise nothing;
    they are reported there once.  In a forked child it does nothing.
    """
    global _under_way
    if step is None:
        _under_way = None
        return []
    if _under_way is False:
        return []
    try:
        number = operator.index(step)
    except Exception:
        _say(f"step must be an integer or None, not {type(step).__name__}")
        return []
    try:
        watch = _under_way
        answer = watch.ends(number) if watch is not None else None
        if answer is None:
            _under_way = watch = _Watch(source or sources.default())
            answer = watch.ends(number)
        return list(answer)
    except Exception as error:
        # The same failure would come in every step.
        _under_way = False
        _say(error)
    return []
