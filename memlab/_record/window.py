"""A window of recording in the progress of a training, and its files.

Owns when a trainer's callback begins and ends to record, once a run, and what is then
written and sent.  Adapters for trainers supply the training's progress, and how to send
a file.  Once open, nothing here raises into the training: a failure is counted,
reported once in a warning, and ends the window.
"""

from __future__ import annotations

import logging
import os
import warnings
import weakref

from memlab import _core
from memlab._errors import tell
from memlab._files import names, store, times, upload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab._files.times import Interval, Progress
    from memlab._record.memory_snapshot import MemorySnapshot

log = logging.getLogger("memlab")

# Counters are compared exactly, shares and seconds as binary fractions allow.
_TOLERANCE = 1e-9


class Window:
    """Records for INTERVAL after SKIP_BATCHES, and writes the recording.

    recording: the memlab.MemorySnapshot that owns this window.  skip_batches: an int.
    interval: an Interval.  folder, filename, remote_file_name: format strings; the last
    may be None.  overwrite: the folder may have files, and sent files replace others.
    send: a function of a path, a name (or URI) to send it under, and OVERWRITE; None
    uploads to URIs only.

    Recording begins with the first batch that starts after SKIP_BATCHES have ended, and
    ends once INTERVAL has passed, in its own unit; or earlier, with close().
    """

    def __init__(
        self,
        recording: MemorySnapshot,
        *,
        skip_batches: int,
        interval: Interval,
        folder: str,
        filename: str,
        remote_file_name: str | None,
        overwrite: bool,
        send: Callable[[str, str, bool], None] | None = None,
    ) -> None:
        # The recording owns this window: a strong reference would keep both alive.
        self._recording = weakref.ref(recording)
        self._skip = skip_batches
        self.interval = interval
        self._templates = folder, filename, remote_file_name
        self._overwrite = overwrite
        self.send = send or _upload_to_uri
        self.files: list[str] = []  # written files
        self.failures = 0
        self._variables = {}
        self._folder = None
        self._skipped = 0
        self._state = "closed"
        self._begun = None  # the training's progress then
        self._latest = None
        self._pid = None

    @property
    def over(self) -> bool:
        """Whether nothing more will be recorded; adapters need no longer report."""
        return self._state in ("closed", "done")

    def lacks_gpu(self, device: str) -> bool:
        """Whether there is nothing to record for a model on DEVICE, a device type;
        warns then.  If the program chose the source, there always is something.
        """
        if device == "cuda" or self._recording()._source not in (None, "cuda"):
            return False
        warnings.warn(
            "The memory snapshot only works on CUDA devices, but the model is on "
            f"{device}. source='cpu' records the CPU's memory.",
            UserWarning,
            stacklevel=3,
        )
        return True

    def open(self, root: str = "", /, **variables: object) -> None:
        """Makes the folder.  VARIABLES, such as run_name, are known in its name and the
        files'.

        root: the folder that it is relative to; empty: the working directory.

        Raises FileExistsError if it has files and overwrite is not set, OSError if it
        cannot be made, ValueError for an invalid name.
        """
        # An exception ended the earlier training, and its trainer was not closed.
        self.close()
        recording = self._recording()
        folder, filename, remote = self._templates
        folder = os.path.join(root, names.fill(folder, **variables))
        names.inside(folder, names.fill(filename, times.Progress(), **variables))
        if remote is not None:
            names.fill(remote, times.Progress(), **variables)
        recording._name_file(**variables)
        os.makedirs(folder, exist_ok=True)
        if not self._overwrite:
            names.require_empty(folder)
        # The program may change its working directory.
        self._folder = os.path.abspath(folder)
        self._variables = variables
        self.files = []
        self.failures = 0
        self._skipped = 0
        self._state = "waiting"

    def batch_start(self, progress: Progress) -> None:
        """A batch begins; PROGRESS counts those before it."""
        if self._state == "waiting" and self._skipped >= self._skip:
            self._latest = progress
            self._begin(progress)

    def batch_end(self, progress: Progress) -> None:
        """A batch has ended, and is counted in PROGRESS."""
        if self._state == "waiting":
            self._skipped += 1
        self.advance(progress)

    def advance(self, progress: Progress) -> None:
        """PROGRESS has counted something else: an epoch, which ends after its batches.
        """
        if not self._is_recording():
            return
        self._latest = progress
        now = progress.in_unit(self.interval.unit)
        if now is None:
            return
        if self._begun is None:
            self._begun = now
        if now - self._begun >= self.interval.value - _TOLERANCE:
            self._finish(progress)

    def close(self, progress: Progress | None = None) -> None:
        """The training ends, or goes no further.  Within the window, writes the
        recording; before it, does nothing, and the window may still begin.
        """
        if self._is_recording():
            self._finish(progress or self._latest)

    def fail(self, what: str, error: BaseException) -> None:
        """Reports that WHAT went wrong, and ends the window; the training continues."""
        recording = self._recording()
        if self._state == "recording" and recording is not None:
            try:
                recording.stop()
            except Exception:
                # The first failure is reported.
                pass
        self._over()
        self._complain(f"{what}: {_said(error)}; the training goes on without it")

    def _is_recording(self):
        """A forked child does not share its parent's recording."""
        return self._state == "recording" and self._pid == os.getpid()

    def _complain(self, text):
        self.failures += 1
        if self.failures == 1:
            tell(text)
        else:
            log.info("%s", text)

    def _over(self):
        self._state = "done"

    def _begin(self, progress):
        try:
            log.info("recording of memory begins, for %s", self.interval)
            self._recording().start()
        except Exception as error:
            self.fail("recording of memory could not begin", error)
            return
        self._state = "recording"
        self._begun = progress.in_unit(self.interval.unit)
        self._pid = os.getpid()
        # An exception may end the training, and the program, without notice.
        upload.at_end(_closer(self))

    def _finish(self, progress):
        try:
            data = self._recording().stop().data()
        except Exception as error:
            self.fail("the recording of memory is lost", error)
            return
        self._over()
        if not any(_has_events(data, i) for i in range(data.device_count)):
            log.info("no memory event was recorded: nothing is written")
            return
        try:
            prefix = self._prefix(progress)
            os.makedirs(os.path.dirname(prefix), exist_ok=True)
        except Exception as error:
            self._complain(f"the recording of memory could not be written: {_said(error)}")
            return
        for path, write in (
            (f"{prefix}.pickle", lambda path: data.write_pickle(path, True)),
            (f"{prefix}.html", lambda path: _write_page(path, data)),
        ):
            try:
                write(path)
            except Exception as error:
                self._complain(f"{path!r} could not be written: {_said(error)}")
            else:
                self.files.append(path)
                log.info("wrote %s", path)
        for path in self.files:
            self._send(path, progress)

    def _prefix(self, progress):
        folder, filename, _ = self._templates
        name = names.fill(filename, progress, **self._variables)
        return names.inside(self._folder, name + names.apart(folder, filename))

    def _send(self, path, progress):
        if self._templates[2] is None:
            return
        try:
            self.send(path, self._remote_name(path, progress), self._overwrite)
        except Exception as error:
            remedy = "it is kept here"
            if isinstance(error, FileExistsError):
                remedy = "overwrite=True replaces what is there"
            # A store's error is reported only by parts that can contain no credentials.
            reason = store.described(error)
            self._complain(f"{path!r} was not sent: {reason}; {remedy}")

    def _remote_name(self, path, progress):
        _, filename, remote = self._templates
        ending = os.path.splitext(path)[1]
        return names.remote(remote, filename, progress, **self._variables) + ending


def _upload_to_uri(path, name, overwrite):
    if names.is_uri(name):
        upload.send(path, name, overwrite)


def _closer(window):
    """A function that ends WINDOW at exit, without keeping it alive until then."""
    reference = weakref.ref(window)

    def close():
        window = reference()
        if window is not None:
            window.close()

    return close


def _has_events(data, device):
    counts = data.counts(device)
    return counts["events"] or counts["dropped_events"]


def _write_page(path, data):
    from memlab._page import page

    _core.write_file(path, page.of(data, title=os.path.basename(path)))


def _said(error):
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
