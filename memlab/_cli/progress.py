"""A progress line on stderr, if that is a terminal; removed before the answer."""

from __future__ import annotations

import sys
import threading
import time

# Seconds before the first line, and between updates.
DELAY, EVERY = 2.0, 1.0


class Progress:
    """After DELAY seconds, says that WHAT is in progress and for how long, until end().
    Does nothing if STREAM is no terminal.
    """

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
            # The terminal is gone.
            self._ended.set()

    def end(self) -> None:
        """Removes the line and ends its updates."""
        # Once: where memory runs out in set(), its lock may stay taken.
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.set()
            thread.join()


_current: Progress | None = None


def begin(what: str) -> None:
    """Begins the line of this process's one command."""
    global _current
    _current = Progress(what, sys.stderr)


def end() -> None:
    """Ends the line before other output."""
    if _current is not None:
        _current.end()
