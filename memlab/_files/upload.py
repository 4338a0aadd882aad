"""The queue of files that memlab uploads while the program trains.

Owns the one thread that empties it and ends when it is empty, the retries, and how long
the program's end waits.  It never raises into the program or delays it.  A file that
was not uploaded stays in place, and is named.
"""

from __future__ import annotations

import atexit
import collections
import os
import random
import threading
import time

from memlab._errors import tell
from memlab._files import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab._core import _Path

# Files that may wait; each is an open file.
_MOST_WAITING = 64
# Seconds that the program's end waits.
_EXIT_SECONDS = 5.0
# Attempts for a file.  Before the next attempt up to FIRST seconds pass, then twice as
# many each time, up to LONGEST.
_ATTEMPTS = 5
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 30.0
# The longest delay once the program is ending.
_LAST_DELAY = 0.5
# Most files named in a message.
_NAMED = 8


class Queue:
    """Files on their way to their stores.

    chance: a function like random.random, for the delay before another attempt.  wait:
    a function that lets seconds pass; None waits, until the program's end interrupts
    it.
    """

    def __init__(
        self,
        chance: Callable[[], float] = random.random,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._chance = chance
        self._ending = threading.Event()
        self._wait = wait or self._rest
        self._changed = threading.Condition()
        # Guarded by `changed`.
        self._waiting = collections.deque()  # (upload, descriptor, path, uri)
        self._under_way = None  # path
        self._thread = None
        self._lost = []  # paths not uploaded and not yet named
        self._left = []  # paths to name at the end
        self._said = set()
        self._pid = None
        self._patience = _EXIT_SECONDS

    def send(self, path: _Path, uri: str, overwrite: bool = False) -> None:
        """See the function of the same name."""
        try:
            path = os.path.abspath(os.fspath(path))
            if self._pid is None:
                self._pid = os.getpid()
            if self._pid != os.getpid():
                # Threads that do not exist in this process may hold its locks.
                tell(
                    f"{path} was not uploaded: a forked child of a process that "
                    "uploads cannot; upload the file yourself"
                )
                return
            self._add(path, str(uri), overwrite)
        except Exception as error:
            self._lose(path, str(uri), store.described(error))

    def _add(self, path, uri, overwrite):
        store.scheme_of(uri)
        # The file as it is now: its name may soon belong to another, or vanish.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise store.Refused(f"it cannot be read: {error.strerror}") from None
        upload = store.Upload(descriptor, path, uri, overwrite)
        try:
            with self._changed:
                if len(self._waiting) >= _MOST_WAITING:
                    raise store.Refused(f"{_MOST_WAITING} others are waiting")
                if self._thread is None:
                    # A daemon: the interpreter does not wait for a store that hangs.
                    thread = threading.Thread(
                        target=self._work, name="memlab-upload", daemon=True
                    )
                    self._thread = thread
                    try:
                        thread.start()
                    except RuntimeError:
                        self._thread = None
                        raise store.Refused("the program ends already") from None
                self._waiting.append((upload, descriptor, path, uri))
        except BaseException:
            os.close(descriptor)
            raise

    def flush(self, timeout: float) -> bool:
        """See the function of the same name."""
        if self._pid != os.getpid():
            return self._pid is None
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout)

    def end(self) -> None:
        """The program is ending: waits up to the limit, and names files that were not
        uploaded.
        """
        if self._pid != os.getpid():
            return
        self._ending.set()
        began = time.monotonic()
        self.flush(max(0.0, self._patience))
        self._patience -= time.monotonic() - began
        with self._changed:
            left = [path for _, _, path, _ in self._waiting]
            if self._under_way is not None:
                left.insert(0, self._under_way)
            left = self._lost + left
            is_news = left != self._left
            self._lost, self._left = [], left
        if left and is_news:
            names = ", ".join(left[:_NAMED])
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            tell(
                "not uploaded when the program ended, and still on this machine: "
                f"{names}{more}"
            )

    def _work(self):
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                upload, descriptor, path, uri = self._waiting.popleft()
                self._under_way = path
            try:
                self._upload(upload, path, uri)
            except BaseException as error:
                # The store's error cannot even be inspected.
                self._lose(path, uri, type(error).__name__)
            finally:
                os.close(descriptor)
                with self._changed:
                    self._under_way = None

    def _upload(self, upload, path, uri):
        for attempt in range(_ATTEMPTS):
            try:
                return upload.attempt()
            except BaseException as error:
                last = attempt + 1 == _ATTEMPTS
                if last or not store.passes(error):
                    tried = f" ({_ATTEMPTS} attempts)" if last else ""
                    return self._lose(path, uri, store.described(error) + tried)
            longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2**attempt)
            self._wait(self._chance() * longest)

    def _rest(self, seconds):
        if self._ending.wait(seconds):
            time.sleep(min(seconds, _LAST_DELAY))

    def _lose(self, path, uri, why):
        """PATH is not uploaded: reports the first of each reason, and keeps the others'
        names for the end.
        """
        with self._changed:
            if why in self._said:
                self._lost.append(path)
                return
            self._said.add(why)
        tell(
            f"{path} was not uploaded to {store.shown(uri)}: {why}; the file "
            "stays where it is"
        )


_queue = Queue()
_at_end = []  # functions; the last is called first
_hooked = False


def at_end(function: Callable[[], object]) -> None:
    """Calls FUNCTION at the program's end, while its files can still be uploaded.

    atexit is too late: the thread pools in which stores resolve hosts are closed by
    then, and from Python 3.12 on no thread can start any more.  This also works in
    children of multiprocessing, which have no atexit.
    """
    _at_end.append(function)
    _hook()


def _hook():
    global _hooked
    if _hooked:
        return
    _hooked = True
    import concurrent.futures.thread  # noqa: F401  whose own hook comes after ours

    # For files that atexit's functions still send.
    atexit.register(_end)
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        try:
            register(_end)
        except RuntimeError:
            # The program is already ending.
            pass


def _end():
    while _at_end:
        try:
            _at_end.pop()()
        except Exception as error:
            tell(f"the last steps at the end of the program failed: {error}")
    _queue.end()


def send(path: _Path, uri: str, overwrite: bool = False) -> None:
    """Uploads the file PATH to URI, such as s3://bucket/key, without waiting.

    The file's current contents are uploaded, even if another file takes its name later.
    The key appears whole or not at all.  Without overwrite, an existing key stays
    unchanged.  Needs fsspec, and the scheme's package.  Raises nothing.  A file that is
    not uploaded, after retries if they may help, is reported once for each reason and
    stays in place.
    """
    _hook()
    _queue.send(path, uri, overwrite)


def flush(timeout: float) -> bool:
    """Waits up to TIMEOUT seconds for the uploads; returns whether none is left."""
    return _queue.flush(timeout)
