"""A progress line on stderr, if that is a terminal; removed before the answer."""

from __future__ import annotations

import math
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._cli import speeds

# Seconds before the first line, and between updates.
DELAY, EVERY = 2.0, 1.0


class Progress:
    """After DELAY seconds, says that WHAT is in progress and for how long, until end().
    Does nothing if STREAM is no terminal.

    expected: seconds that it will take in all, about; None: as READING tells, if that is
    given.  took: seconds up to end(); None before, and without a line.
    """

    def __init__(
        self,
        what: str,
        stream,
        delay: float = DELAY,
        every: float = EVERY,
        expected: float | None = None,
        reading: speeds.Reading | None = None,
    ) -> None:
        self._what = what
        self._stream = stream
        self._waits = delay, every
        self._expected, self._reading = expected, reading
        self.took: float | None = None
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if stream is not None and stream.isatty():
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()

    def _tell(self):
        delay, every = self._waits
        due, said = self._began + delay, False
        while not self._ended.wait(self._pause(due)):
            now = time.monotonic()
            if now >= due:
                self._write(f"\r\033[K{self._line(now - self._began)}")
                due, said = now + every, True
        if said:
            self._write("\r\033[K")

    def _pause(self, due):
        look = math.inf if self._reading is None else self._reading.wait()
        return max(0.0, min(due - time.monotonic(), look))

    def _line(self, seconds):
        said = f"memlab: {self._what} ... {int(seconds)} s"
        expected = self._expected
        if expected is None and self._reading is not None:
            expected = self._reading.expected()
        left = 0 if expected is None else round(expected - seconds)
        # An estimate that was too short says nothing more.
        return f"{said}, about {left} s left" if left > 0 else said

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
            self.took = time.monotonic() - self._began
            self._ended.set()
            thread.join()
