"""A window of recording in the progress of a training, and its files.

Owns when a trainer's callback begins and ends to record, once a run, and what is then
written, sent and told.  Adapters for trainers supply the training's progress, and how to
send a file.  Once open, nothing here raises into the training: a failure is counted,
reported once in a warning, and ends the window.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref

from memlab import _core
from memlab._errors import tell
from memlab._files import names, store, times, upload
from memlab._report import peaks
from memlab._text import terminal, wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab._files.times import Interval, Progress
    from memlab._record.memory_snapshot import MemorySnapshot

log = logging.getLogger("memlab")

# Counters are compared exactly, shares and seconds as binary fractions allow.
_TOLERANCE = 1e-9

_DEFAULT_NAME = "rank{rank}.{batch}.memory_snapshot"

_ENDINGS = ".pickle", ".html"

# Why a window may stay open whatever the training does, by unit.
_NOT_COUNTED = {
    "tok": "the trainer counted no tokens in it",
    "sp": "the trainer counted no samples in it",
    "iter": "the trainer counted no iteration in it",
    "dur": "the trainer does not know how long it trains",
}

# What to do about files that cannot be written.
_ELSEWHERE = "the callback's snapshot.save(path) writes it elsewhere"

# Names that windows of this process have sent files under, by themselves.
_sent: set[str] = set()


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
        self.skip_batches = skip_batches
        self.interval = interval
        self.folder = folder
        self.filename = filename
        self.remote_file_name = remote_file_name
        self.overwrite = overwrite
        self.send = send or _upload_to_uri
        self.files: list[str] = []  # written files
        self.failures = 0
        self._variables = {}
        self._root = None
        self._batches = 0  # that have ended since the opening
        # Of a loop that tells only where its steps begin, close() ends the last.
        self.ends_step = False
        self._recorded = 0  # that have ended within the window
        self._state = "closed"
        self._begun = None  # the training's progress then
        self._told = False
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

    def open(self, root: str = "", /, resumed: bool = False, **variables: object) -> None:
        """Makes the folder.  VARIABLES, such as run_name, are known in its name and the
        files'.

        root: the folder that it is relative to; empty: the working directory.  resumed:
        the training goes on from a checkpoint; files that are there stay, beside its own.

        Raises FileExistsError if it has files, overwrite is not set and the training is
        not resumed, OSError if it cannot be made, ValueError for an invalid name.
        """
        # An exception ended the earlier training, and its trainer was not closed.
        self.close()
        recording = self._recording()
        folder = os.path.join(root, names.fill(self.folder, **variables))
        names.inside(folder, names.fill(self.filename, times.Progress(), **variables))
        if self.remote_file_name is not None:
            names.fill(self.remote_file_name, times.Progress(), **variables)
        recording._name_file(**variables)
        names.make_folder(folder)
        if not self.overwrite:
            names.require_empty(folder, resumed)
        # The program may change its working directory.
        self._root = os.path.abspath(folder)
        self._variables = variables
        self.files = []
        self.failures = 0
        self._batches = self._recorded = 0
        self._told = False
        self._state = "waiting"
        self._pid = os.getpid()
        # An exception may end the training, and the program, without notice.
        upload.at_end(_closer(self))

    def batch_start(self, progress: Progress) -> None:
        """A batch begins; PROGRESS counts those before it."""
        if self._state == "waiting" and self._batches >= self.skip_batches:
            self._latest = progress
            self._begin(progress)

    def batch_end(self, progress: Progress) -> None:
        """A batch has ended, and is counted in PROGRESS."""
        self._batches += 1
        if self._is_recording():
            self._recorded += 1
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
        recording; before it, says so once, and the window may still begin.
        """
        if self._is_recording():
            last = progress or self._latest
            self._recorded += self.ends_step
            self._finish(last, self._why_open(last))
            return
        ended = self._batches + self.ends_step
        if self._state == "waiting" and ended and self._pid == os.getpid():
            self._say_nothing_recorded(
                f"the training ended after {_batches(ended)}, and the recording "
                f"begins after skip_batches={self.skip_batches}; give fewer"
            )

    def _why_open(self, progress):
        """Why the interval has not passed; empty: the training was too short for it."""
        unit = self.interval.unit
        now = progress.in_unit(unit)
        stands = now is None or now == self._begun
        return _NOT_COUNTED.get(unit, "") if stands and self._recorded else ""

    def _say_nothing_recorded(self, why):
        if not self._told:
            self._told = True
            tell(f"nothing was recorded: {why}")

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

    def _finish(self, progress, why_open=None):
        """WHY_OPEN: None where the interval has passed, else as of _why_open()."""
        try:
            data = self._recording().stop().data()
        except Exception as error:
            self.fail("the recording of memory is lost", error)
            return
        self._over()
        if not any(_has_events(data, i) for i in range(data.device_count)):
            # stop() has told of a device that is not there.
            if not self._recording()._lacks_device():
                self._say_nothing_recorded(
                    f"no memory was allocated or freed in {_batches(self._recorded)}; no "
                    "file is written"
                )
            return
        if why_open:
            tell(
                f"interval='{self.interval}' did not pass, as {why_open}: the recording is "
                f"of {_batches(self._recorded)}, until the training ended; give batches, "
                "as interval='3ba'"
            )
        try:
            prefix, beside = self._prefix(progress)
            os.makedirs(os.path.dirname(prefix), exist_ok=True)
        except Exception as error:
            self._complain(
                f"the recording of memory could not be written: {_said(error)}; {_ELSEWHERE}"
            )
            return
        for path, write in (
            (f"{prefix}.pickle", lambda path: data.write_pickle(path, True)),
            (f"{prefix}.html", lambda path: _write_page(path, data)),
        ):
            try:
                write(path)
            except Exception as error:
                reason = getattr(error, "strerror", None) or _said(error)
                self._complain(f"{path!r} could not be written: {reason}; {_ELSEWHERE}")
            else:
                self.files.append(path)
        self._say_files(data, why_open is not None)
        for path in self.files:
            self._send(path, progress, beside)

    def _say_files(self, data, early):
        """One line: of the first rank where people look, of the others in the log.

        EARLY: the training ended first.
        """
        if not self.files:
            return
        try:
            text = f"memlab: {_peak(data)}; wrote {_shown(self.files)}"
            if early:
                text += f"; the training ended before {self.interval} had passed"
            if log.isEnabledFor(logging.INFO) or names.ranks()["rank"]:
                log.info("%s", text)
            else:
                _print(text)
        except Exception as error:
            self._complain(f"the recording's peak could not be told: {_said(error)}")

    def _prefix(self, progress):
        """The path of the files without ending, and what it has at its end so as to leave
        others alone.
        """
        name = names.fill(self.filename, progress, **self._variables)
        name += names.apart(self.folder, self.filename)
        path = names.inside(self._root, name)
        return names.unused(path, () if self.overwrite else _ENDINGS)

    def _send(self, path, progress, beside):
        if self.remote_file_name is None:
            return
        try:
            name = self._remote_name(path, progress, beside)
            self.send(path, name, self.overwrite)
        except Exception as error:
            remedy = "it is kept here"
            if isinstance(error, FileExistsError):
                remedy = "overwrite=True replaces what is there"
            # A store's error is reported only by parts that can contain no credentials.
            reason = store.described(error)
            self._complain(f"{path!r} was not sent: {reason}; {remedy}")

    def _remote_name(self, path, progress, beside):
        ending = os.path.splitext(path)[1]
        name = names.remote(
            self.remote_file_name,
            self.filename,
            progress,
            default=_DEFAULT_NAME,
            **self._variables,
        )
        return name + beside + ending


def _upload_to_uri(path, name, overwrite):
    if names.is_uri(name):
        name = name if overwrite else names.not_taken(name, _sent)
        upload.send(path, name, overwrite)


def _closer(window):
    """A function that ends WINDOW at exit, without keeping it alive until then."""
    reference = weakref.ref(window)

    def close():
        window = reference()
        if window is not None:
            window.close()

    return close


def _batches(count):
    return "1 batch" if count == 1 else f"{count} batches"


def _peak(data):
    """The highest peak of DATA's devices, in words."""
    answer = peaks.peak(data)
    size = wording.size(answer["peak"]["allocated_bytes"])
    device = wording.escape(data.device_name(answer["device"]))
    return f"peak {size} allocated on {device}"


def _print(text):
    """Prints TEXT to stderr, above the bars of tqdm, which trainers show there."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if getattr(tqdm, "_instances", None):
        tqdm.write(text, file=sys.stderr)
    else:
        terminal.say(text, sys.stderr)


def _shown(files):
    """Paths in few words: of files that differ in their ending, the first and the others'
    endings.
    """
    first, *others = files
    stem, _ = os.path.splitext(first)
    endings = "".join(f" and {os.path.splitext(path)[1]}" for path in others)
    shown = wording.escape(wording.shorten(first))
    return f"{shown}{endings}" if all(p.startswith(stem) for p in others) else shown


def _has_events(data, device):
    counts = data.counts(device)
    return counts["events"] or counts["dropped_events"]


def _write_page(path, data):
    from memlab._page import page

    _core.write_file(path, page.of(data, title=os.path.basename(path)))


def _said(error):
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
