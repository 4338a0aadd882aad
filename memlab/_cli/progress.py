"""That a command is still at work: a line on stderr, where that is a terminal, which goes
before the answer comes."""

from __future__ import annotations

import sys
import threading
import time

# Seconds until it is said, and from then on between two times.
DELAY, EVERY = 2.0, 1.0


class Progress:
    """Says after DELAY seconds that WHAT goes on, and how long it has, until end().  Does
    nothing where STREAM is no terminal."""

    def __init__(self, what: str, stream, delay: float = DELAY, every: float = EVERY) -> None:
        self._what = what
        self._stream = stream
        self._waits = delay, every
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if stream is not None and stream.isatty():
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()

    def _tell(self):
        delay, every = self._waits
        said = False
        while not self._ended.wait(every if said else delay):
            seconds = int(time.monotonic() - self._began)
            self._write(f"\rmemlab: {self._what} ... {seconds} s")
            said = True
        if said:
            self._write("\r\033[K")

    def _write(self, text):
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads it any more.
            self._ended.set()

    def end(self) -> None:
        """From here on nothing is said, and the line is gone."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


_current: Progress | None = None


def begin(what: str) -> None:
    """Of the one command of this process."""
    global _current
    _current = Progress(what, sys.stderr)


def end() -> None:
    """Before anything else is written."""
    if _current is not None:
        _current.end()
