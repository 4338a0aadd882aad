"""Holders of growing memory: searched while the program runs and at its end, and noted
in the recording.  Variables that hold memory in vain are noted with them.

A list in a function dies with the function, so the first search comes early, after some
optimizer steps.  Further ones come at growing distances: what has left five blocks by the
end, such as one each epoch, had left the three that are enough by the last of them.
Together they take at most a second.  Nothing is raised into the program.
"""

import os
import re
import sys
import time

from memlab import _core
from memlab._errors import tell
from memlab._native import sources
from memlab._objects import holders
from memlab._record import optimizers
from memlab._run import variables

# Steps before the first search: one more than a leak needs.
_FIRST = 6
# The step after which variables are looked at: all states exist, and code has settled.
_SETTLED = 2
_TIMES = 1.5
# The holder of garbage, which csrc/core/analysis/answers/growth_holders.c knows.
_CYCLE = "a reference cycle"
_SECONDS = 1.0
_LINES = 8
# Events and objects that can be visited in that time.
_EVENTS = 200_000
_OBJECTS = 3_000_000

# A number, or the last key of an expression.
_KEY = re.compile(r"\[(?:\d+\]|[^\[\]]*\](?=`|$))")


class Watch:
    """Searches for holders of growing memory in SNAPSHOT, while it records."""

    def __init__(self, snapshot):
        self._snapshot = snapshot
        self._pid = os.getpid()
        self._steps = 0
        self._next = _FIRST
        self._left = _SECONDS
        self._last = 0.0
        self._stopped = False
        snapshot._look = self.last_look

    def start(self):
        """Starts searching at steps."""
        if "torch" in sys.modules:
            optimizers.watch(self)

    def before_step(self, optimizer):
        """Nothing has grown yet."""

    def after_step(self, optimizer):
        """An optimizer has stepped."""
        self._steps += 1
        if self._steps == _SETTLED:
            self._look_at_variables(sys._getframe(1))
        if self._steps < self._next:
            return
        self._next = int(self._next * _TIMES)
        # There is this much more to visit than the last time.
        if self._last * _TIMES > self._left or os.getpid() != self._pid:
            self._stop()
            return
        if sys.getallocatedblocks() > _OBJECTS:
            optimizers.forget(self)  # the last look says so, and once
            return
        begin = time.perf_counter()
        try:
            snapshot = self._snapshot
            if _events(snapshot) > _EVENTS:
                self._stop()
            elif snapshot.recording:
                self.look(
                    snapshot._freeze(sources.dialect_keys(), snapshot._rank(), None),
                    running=True,
                )
        except Exception:
            self._stop()
        self._last = time.perf_counter() - begin
        self._left -= self._last

    def _look_at_variables(self, frame):
        """FRAME is that of torch's hooks."""
        try:
            variables.look(self._snapshot._source or sources.default(), frame)
        except Exception as error:
            tell(f"variables that hold memory in vain could not be looked for: {error!r}")

    def _stop(self):
        self._stopped = True
        optimizers.forget(self)

    def last_look(self, recording):
        """Searches in RECORDING, which has the whole program."""
        optimizers.forget(self)
        try:
            found = self.look(recording)
            if self._stopped and not found and _grows(recording):
                tell("who holds what grows was not looked for in all of the run: that takes long")
            return found
        except Exception as error:
            tell(f"who holds what grows could not be looked for: {error!r}")
            return False

    def look(self, recording, running=False):
        """Notes the holders of growing memory in RECORDING; returns whether there are
        any.  running: whether it is in the midst of the program.
        """
        if "torch" not in sys.modules:
            return False
        found = {
            device: lines
            for device in range(recording.device_count)
            if (lines := _unknown(recording, device))
        }
        if found and sys.getallocatedblocks() > _OBJECTS:
            tell("who holds what grows was not looked for: there are too many objects")
            return False
        return any([_look(recording, *each, running) for each in found.items()])


def _events(snapshot):
    """Number of events of all devices so far."""
    source = snapshot._source or sources.default()
    return sum(each["events"] for each in sources.stats_of_all(source).values())


def _grows(recording):
    """Whether a line without a known holder grows."""
    devices = range(recording.device_count)
    lines = [line for device in devices for line in recording.growth(device)["lines"]]
    return any(line["certain"] and not line["holder"] for line in lines)


def _unknown(recording, device):
    """Growing lines without a known holder."""
    lines = recording.growth(device)["lines"]
    return [line for line in lines if line["addresses"] and not line["holder"]][:_LINES]


def _look(recording, device, growing, running):
    addresses = [address for line in growing for address in line["addresses"]]
    tensor = sys.modules["torch"].Tensor
    source = recording.source
    found = _core.tensors_at(tensor, source == "cuda", device, addresses)
    known = {}
    live = [each for each in found if each is not None]
    places = [at for at, each in zip(addresses, found, strict=True) if each is not None]
    # find() needs the only list.
    found = None
    for address, held in zip(places, holders.find(live), strict=True):
        known[address] = held
    noted = False
    for line in growing:
        asked = [at for at in line["addresses"] if at in known]
        name = _common([known[at] for at in asked])
        if not name and running and _is_garbage([known[at] for at in asked]):
            name = _CYCLE
        if name:
            _core.note_holder(source, device, asked[0], name)
            noted = True
    return noted


def _is_garbage(held):
    """Whether nothing but reference cycles holds the tensors, by HELD as in _common().  Once
    the program has ended, so may what it held to its end.
    """
    return bool(held) and all(
        each and all(holder.kind == "cycle" for holder in each) for each in held
    )


def _common(held):
    """The most frequent holder of the tensors, by HELD, each one's list of holders; of
    several, the nearest. "" if none is known.
    """
    times, kept = {}, {}
    for each in held:
        names = {}
        for holder in each:
            if holder.kind not in ("temporary", "cycle", "outside"):
                names.setdefault(_KEY.sub("[...]", holder.path), holder.path)
        for name, path in names.items():
            times[name] = times.get(name, 0) + 1
            kept.setdefault(name, path)
    if not times:
        return ""
    name = max(times, key=times.get)
    return kept[name] if times[name] == 1 else name
