"""How long a command takes for its files: for a byte as long as it last took here; at its
first use, so many times as long as it reads them.

Owns the file that keeps this, in the user's cache.  What cannot be read or kept is not
known, and no error.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable

from memlab._errors import Error
from memlab._native import cache

# How many times as long as reading its files a command takes in all; measured with the ten
# million events of docs/COST.md.
_READINGS = {"report": 3, "diff": 3, "merge": 4, "view": 4, "replay": 8, "explain": 10}
_READINGS |= {"convert": 11, "tune": 35}
# Fewer bytes tell nothing: importing modules reads some, too.
_LEAST = 16 << 20
# Seconds between looks at how much was read, and after which what has not grown has ended.
_LOOK, _STILL = 0.1, 1.0


def _kept() -> str:
    return os.path.join(cache.folder(), "speeds.json")


def size_of(paths: Iterable[object]) -> int:
    """Bytes of the files that a command reads of PATHS: of a folder, its ranks'."""
    from memlab._files import download, merged

    total = 0
    for path in paths:
        # What a store holds is not asked for.
        if not isinstance(path, str) or download.is_uri(path):
            continue
        try:
            total += sum(os.path.getsize(file) for file in merged.files([path]))
        except (Error, OSError, ValueError):
            pass
    return total


def bytes_read() -> int | None:
    """Bytes that this process has read up to now; None: not known."""
    try:
        with open("/proc/self/io", "rb") as counters:
            return int(counters.read().partition(b"rchar:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None


class Reading:
    """The first use of COMMAND, which reads SIZE bytes: how long it takes, by how fast it reads
    them.  wait() is to be called until it gives no further look.
    """

    def __init__(
        self,
        command: str,
        size: int,
        count: Callable[[], int | None] = bytes_read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._times = _READINGS.get(command, 0)
        self._size, self._count, self._clock = size, count, clock
        self._began = self._grew = clock()
        # Where nothing will be told, nothing is looked at.
        told = self._times and size >= _LEAST
        self._before, self._read = count() if told else None, 0
        self._over = self._before is None

    def wait(self) -> float:
        """Looks at how much was read; returns the seconds to the next look."""
        if not self._over:
            now, count = self._clock(), self._count()
            read = min(self._size, (count or 0) - (self._before or 0))
            if read > self._read:
                self._read, self._grew = read, now
            self._over = read == self._size or now - self._grew > _STILL
        return math.inf if self._over else _LOOK

    def expected(self) -> float | None:
        """Seconds from its begin to its end, about; None: not known."""
        # So little is no measure.
        if self._read <= self._size / 20 or not self._times:
            return None
        took = self._grew - self._began
        return self._times * (took if self._over else took * self._size / self._read)


def _all() -> dict[str, float]:
    import json

    try:
        with open(_kept(), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {
        key: float(value)
        for key, value in known.items()
        if isinstance(value, (int, float)) and 0 < value < 1
    }


def seconds(command: str, size: int) -> float | None:
    """Seconds that COMMAND will take for SIZE bytes; None: not known."""
    rate = _all().get(command) if size > 0 else None
    return None if rate is None else rate * size


def keep(command: str, size: int, took: float) -> None:
    """Keeps that COMMAND took TOOK seconds for SIZE bytes."""
    if size <= 0:
        return
    import json

    path = _kept()
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump({**_all(), command: took / size}, file)
        os.replace(part, path)
    except (OSError, ValueError):
        pass
