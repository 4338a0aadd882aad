"""memlab.MemorySnapshot: records memory events and answers what was live at the peak."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref

from memlab import _annotations, _core, _oom, _report, _sources
from memlab._errors import Error
from memlab._owners import Owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from memlab._answers import LineTable, Peak
    from memlab._core import _Path


def _end_at_exit(snapshot):
    """A program that ends without stop() leaves a file that says it was ended."""
    reference = weakref.ref(snapshot)

    def end():
        snapshot = reference()
        if snapshot is not None and snapshot._pid == os.getpid():
            snapshot._end()

    atexit.register(end)


class MemorySnapshot(_core.MemorySnapshot):
    """Records the memory of a program, at a cost low enough to leave on.

        with memlab.MemorySnapshot() as snapshot:
            train()
        print(snapshot.summary())

    max_entries: newest events kept for each device, at least 1; older ones are counted.
    source: "cuda", "cpu", or None for the GPU where there is one.
    stacks: "python", or "all" for C++ frames too, which costs microseconds an event.
    context: None, "state", "alloc" or "all": the events that get stacks, as in torch.
    device: an index to record one device only; None for all.
    on_oom: a folder; when CUDA is out of memory, the recording is written there before
        torch raises, as rank{rank}_oom.pickle with a report in words beside it, of the
        first time and, with _last in the name, of the last.  Or the path of that pickle,
        in which {rank} stands for the rank; without it the names of ranks but 0 end in
        _rankN.  None writes nothing.
    file: a .mlab file to which every event goes as it happens, so that it outlives the
        process however that ends; memlab report, view, convert and load read it, even
        while it is written.  A file there is replaced if it is a finished recording.
    max_file_bytes: most bytes that it may have; later events are counted only.  None for
        no limit.

    Raises memlab.Error, ValueError or TypeError for a value that makes no sense.

    Recording may begin before the program uses CUDA, and never makes it do so.  Any
    number of recordings, torch's own included, run side by side.
    """

    def __init__(
        self,
        *,
        max_entries: int = 100_000,
        source: Literal["cuda", "cpu", "script"] | None = None,
        stacks: Literal["python", "all"] = "python",
        context: Literal["state", "alloc", "all"] | None = "all",
        device: object = None,
        on_oom: _Path | None = None,
        file: _Path | None = None,
        max_file_bytes: int | None = None,
    ) -> None:
        if stacks not in ("python", "all"):
            raise Error("expected stacks to be 'python', or 'all'")
        if context not in (None, "state", "alloc", "all"):
            raise Error("expected context to be 'state', 'alloc', 'all', or None")
        whole = hasattr(max_entries, "__index__") and not isinstance(max_entries, bool)
        if not whole or max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, not {max_entries!r}")
        self._options = {
            "max_entries": int(max_entries),
            "context": context,
            "native": stacks == "all",
            "events": True,
            "device": -1 if device is None else _sources.parse_device(device)[1],
            "file": None if file is None else os.fspath(file),
            "max_file_bytes": max_file_bytes,
        }
        self._source = source
        self._oom_paths = None if on_oom is None else _oom.Paths(on_oom)
        self._watch = None
        self._owners = Owners(self)
        self._frozen = None
        self._pid = None

    def start(self) -> MemorySnapshot:
        """Begins to record, forgetting an earlier recording of this object; returns it.

        Some milliseconds once torch is imported.  Raises memlab.Error where there is
        nothing to record, or the file cannot be had, with the remedy; ValueError for a
        size that makes no sense.
        """
        source = self._source or _sources.default()
        _sources.ensure(source)
        self._begin(source, keys=_sources.dialect_keys(), **self._options)
        if self._options["file"] is not None and self._pid is None:
            _end_at_exit(self)
        self._pid = os.getpid()
        self._frozen = None
        if source != "script":
            try:
                if self._oom_paths is not None and source == "cuda":
                    self._watch = _oom.Watch(self, self._oom_paths)
                    self._watch.begin()
                self._owners.start()
                _annotations.start()
            except BaseException:
                self._owners.stop()
                self._end()
                _annotations.stop()
                self._end_watch()
                raise
        return self

    def stop(self) -> MemorySnapshot:
        """Ends the recording, whose answers stay; returns this object.

        Nothing where there is none, and in a forked child, which has no part in its
        parent's recording.  Raises memlab.Error where memory cannot be read, and
        MemoryError: the recording has ended then, without answers.
        """
        if not self.recording or self._pid != os.getpid():
            return self
        self._owners.stop()
        try:
            self._frozen = self.data()
        finally:
            self._end()
            _annotations.stop()
            self._end_watch()
        return self

    def _end_watch(self):
        if self._watch is not None:
            self._watch.end(self._frozen)
            self._watch = None

    def __enter__(self) -> MemorySnapshot:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        try:
            self.stop()
        except (Error, MemoryError) as error:
            # What the program did inside the block counts for more.
            warnings.warn(f"memlab: the recording is lost: {error}", RuntimeWarning)

    def _read(self):
        self._owners.scan()
        _core.sample(False)
        return self._freeze(_sources.dialect_keys())

    def data(self) -> _core.Recording:
        """The recording so far, as an immutable memlab._core.Recording.

        While recording, each call reads anew.  Raises memlab.Error where nothing was
        recorded, where memory cannot be read, and in a forked child for its parent's
        recording; MemoryError.
        """
        if self.recording and self._pid != os.getpid():
            raise Error("a forked child cannot read its parent's recording")
        if self.recording:
            try:
                return self._read()
            except Error:
                # Another thread's stop() may have come in between.
                if self.recording or self._frozen is None:
                    raise
        if self._frozen is None:
            raise Error("nothing was recorded; call start() first")
        return self._frozen

    def save(self, path: _Path) -> None:
        """Writes the recording to PATH as a pickle that torch's viewer reads too.

        The file appears whole or not at all, readable by its owner only.  Raises OSError,
        and what data() raises.
        """
        self.data().write_pickle(os.fspath(path), True)

    def html(self) -> str:
        """The recording as one self-contained HTML page that needs no network.

        Raises what data() raises.
        """
        from memlab import _page

        return _page.assemble(self.data().page_data()).decode()

    def peak(self, device: int | None = None) -> Peak:
        """What was live when allocated bytes were at their peak.

        device: an index; None for the device with the largest peak.  Returns a dict,
        described in docs/REPORT.md; bytes and microseconds are ints.  Raises IndexError
        for a device that the recording does not have, and what data() raises.
        """
        return _report.peak(self.data(), device)

    def lines(
        self, device: int | None = None, functions: Iterable[str] = ()
    ) -> list[LineTable]:
        """What memory did while each line of some functions ran.

        device: an index; None for the device with the largest peak.  functions: their
        names, as `memlab report -f` takes them; without any, the three of your files
        whose own lines hold most at the peak.  Returns one dict a function, described in
        docs/REPORT.md.  Raises memlab.Error for a name that the recording does not have,
        and what peak() raises.
        """
        return _report.lines(self.data(), device, tuple(functions))

    def summary(self, device: int | None = None) -> str:
        """The answer of peak() as text for people, sizes in binary units.

        device: an index; None for all that have events or memory.  Raises what peak()
        raises.
        """
        return _report.text(self.data(), device)
