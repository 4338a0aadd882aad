"""memlab.MemorySnapshot: records memory events and answers what was live at the peak.

It is also a callback of Composer's Trainer.  composer_hooks.py has Composer's events,
own_loop.py the call for loops without a trainer, and window.py the time of recording.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref

from memlab import _core
from memlab._errors import Error, check_count, tell
from memlab._files import names, times
from memlab._native import linemaps, sources
from memlab._record import annotations as _annotations
from memlab._record import kept, oom
from memlab._record.composer_hooks import ComposerHooks
from memlab._record.own_loop import OwnLoop
from memlab._record.owners import Owners
from memlab._record.window import Window
from memlab._record.windowed import Windowed
from memlab._recording.answers import Answers
from memlab._text.code import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from memlab._core import _Path


_MOST_BYTES = 2**64 - 1
_MOST_STEPS = 2**31


def _place():
    """This process's place in a run of several: (world_size, rank, local_rank), or
    None.
    """
    known = names.ranks()
    if known["world_size"] < 2:
        # A single process; or one of several without a known rank, which would all be
        # rank 0.
        return None
    return known["world_size"], known["rank"], known["local_rank"]


def _end_at_exit(snapshot):
    """If a program ends without stop(), its file says that it was ended."""
    reference = weakref.ref(snapshot)

    def end():
        snapshot = reference()
        if snapshot is not None and snapshot._pid == os.getpid():
            snapshot._tell_lines()
            snapshot._end()

    atexit.register(end)


def _checked_limits(max_file_bytes, keep_last, file):
    """How many steps FILE keeps, 0 for all, and its most bytes, None for the default."""
    if max_file_bytes is not None:
        check_count(max_file_bytes, 1, "max_file_bytes")
    if keep_last is None:
        # A higher limit is no limit.
        return 0, max_file_bytes and min(int(max_file_bytes), _MOST_BYTES)
    if max_file_bytes is not None:
        raise ValueError(
            "max_file_bytes keeps the first part of a run, and keep_last the last: "
            "give one of them"
        )
    if file is None:
        raise ValueError("keep_last is of a file: give file, too")
    return kept.parse(keep_last)


class MemorySnapshot(ComposerHooks, OwnLoop, Windowed, Answers, _core.MemorySnapshot):
    """Records the memory of a program, at a cost low enough to leave on.

        with memlab.MemorySnapshot() as snapshot:
            train()
        print(snapshot.summary())

    It has the methods of memlab.Recording for what it recorded.

        trainer = composer.Trainer(..., callbacks=[memlab.MemorySnapshot()])

    As a callback, or in a loop that calls step(), it makes one recording and writes it.
    Options for these:

    skip_batches: batches before it records, at least 0.
    interval: how long it records: an int of batches, or a string: "3ba" batches, "1ep"
        epochs, "2iter" iterations, "100sp" samples, "3e4tok" tokens, "0.1dur" a share of
        the training, "90sec" or "1h20m40s"; or Composer's Time.  Recording ends with the
        first batch at or after the end of the interval, or with the training.
    folder, filename: format strings of the files' path, to which .pickle and .html are
        added; fields are run_name, rank, local_rank, world_size, local_world_size,
        node_rank, and of filename also epoch, batch, batch_in_epoch, sample,
        sample_in_epoch, token, token_in_epoch (ints), total_wct, epoch_wct, batch_wct
        (seconds).
    remote_file_name: as filename: the name under which both are uploaded, which may be a
        URI.  A folder where its last part has no field but run_name.  None for no upload.
    overwrite: whether the folder may have files, and uploads replace existing ones.

    Options for every recording:

    max_entries: newest events kept for each device, at least 1; older ones are counted.
    source: "cuda", "cpu", or None for the GPU where there is one.
    stacks: "python", or "all" for C++ frames too, which costs microseconds an event.
    context: None, "state", "alloc" or "all": the events that get stacks, as in torch.
    device: an index to record one device only; None for all.
    on_oom: a folder.  When CUDA runs out of memory, memlab writes the recording there
        before torch raises, as rank{rank}_oom.pickle with a report in words: of the first
        time and, with _last in the name, of the last.  Or the path of that pickle, in
        which {rank} is the rank; without {rank} the names of ranks other than 0 end in
        _rankN.  None writes nothing.
    file: a .mlab file to which every event goes as it happens, so that it survives the
        process however that ends; memlab report, view, convert and load read it, even
        while it is written.  A finished recording at this path is replaced.
    max_file_bytes: size limit of that file; later events are counted, not stored.  None
        is unlimited.
    keep_last: in place of max_file_bytes, for a long run: the file keeps the newest part,
        as "50steps" or "4GiB", and the memory at the start of that part, with its stacks
        and owners.  In bytes it is the limit of the file, at least 16MiB: it keeps about
        the newest half or more.  In steps the limit is 16 GiB, and at least so many of the newest
        steps stay as half of it holds.  GPU recordings only.
    uses: whether to record when a torch operator last used each block on the GPU, for
        `memlab explain` and `memlab tune`.  A step takes 10 to 40 % longer.  A number
        N above 1 follows the first four steps, then three in a row of each 3 N: an Nth of
        the cost.  explain then infers what happens in the others.
    source_lines: whether to keep the text of the code lines that stacks name, so that a
        report shows them on any machine.  The text is read when the recording is, and for
        a file now and then after an optimizer step.

    Raises memlab.Error, ValueError or TypeError for an invalid value.

    Recording may begin before the program uses CUDA, and never makes it do so.  Any
    number of recordings, torch's own included, run side by side.
    """

    def __init__(
        self,
        skip_batches: int = 1,
        interval: int | str | Any = "3ba",
        max_entries: int = 100_000,
        folder: str = "{run_name}/torch_traces",
        filename: str = "rank{rank}.{batch}.memory_snapshot",
        remote_file_name: str | None = (
            "{run_name}/torch_memory_traces/rank{rank}.{batch}.memory_snapshot"
        ),
        overwrite: bool = False,
        *,
        source: Literal["cuda", "cpu", "script"] | None = None,
        stacks: Literal["python", "all"] = "python",
        context: Literal["state", "alloc", "all"] | None = "all",
        device: object = None,
        on_oom: _Path | None = None,
        file: _Path | None = None,
        max_file_bytes: int | None = None,
        keep_last: str | None = None,
        uses: bool | int = False,
        source_lines: bool = True,
    ) -> None:
        if stacks not in ("python", "all"):
            raise Error("expected stacks to be 'python', or 'all'")
        if context not in (None, "state", "alloc", "all"):
            raise Error("expected context to be 'state', 'alloc', 'all', or None")
        if source is not None:
            sources.check(source)
        check_count(max_entries, 1, "max_entries")
        check_count(skip_batches, 0, "skip_batches")
        if not isinstance(uses, bool):
            check_count(uses, 0, "uses")
        kept_steps, max_file_bytes = _checked_limits(max_file_bytes, keep_last, file)
        folder = names.check_template(folder, "folder")
        filename = names.check_template(filename, "filename")
        if remote_file_name is not None:
            names.check_template(remote_file_name, "remote_file_name")
        self._window = Window(
            self,
            skip_batches=int(skip_batches),
            interval=times.parse(interval),
            folder=folder,
            filename=filename,
            remote_file_name=remote_file_name,
            overwrite=bool(overwrite),
        )
        self._options = {
            "max_entries": int(max_entries),
            "context": context,
            "native": stacks == "all",
            "events": True,
            "device": -1 if device is None else sources.parse_device(device)[1],
            "file": None if file is None else os.fspath(file),
            "max_file_bytes": max_file_bytes,
            "kept_steps": kept_steps,
            "uses": min(int(uses), _MOST_STEPS),
        }
        self._file = self._options["file"]
        self._source = source
        self._oom_paths = None if on_oom is None else oom.Paths(on_oom)
        self._watch = None
        self._owners = Owners(self)
        self._source_lines = bool(source_lines)
        self._code = None
        self._frozen = None
        # Called at the end with the recording; returns whether it added notes.
        self._look = None
        self._pid = None
        self._place = None

    def _name_file(self, **variables):
        """Fills in the file's name for this run and rank, and makes its folder."""
        template = self._file
        if not isinstance(template, str):
            return
        names.check_template(template, "file")
        stem, ending = os.path.splitext(names.fill(template, **variables))
        path = os.path.abspath(stem + names.apart(template) + ending)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._options["file"] = path

    @property
    def snapshot(self) -> MemorySnapshot:
        """This object; the callbacks of other trainers have theirs under this name."""
        return self

    def start(self) -> MemorySnapshot:
        """Begins to record, and forgets an earlier recording of this object; returns
        it.

        Takes some milliseconds once torch is imported.  Raises memlab.Error, with what
        to do, if there is nothing to record or the file cannot be made; ValueError for
        an invalid size.
        """
        source = self._source or sources.default()
        sources.ensure(source)
        self._code = Reader() if self._source_lines else None
        self._begin(source, keys=sources.dialect_keys(), place=self._rank(), **self._options)
        if self._options["file"] is not None and self._pid is None:
            _end_at_exit(self)
        self._pid = os.getpid()
        self._frozen = None
        if source != "script":
            try:
                if self._oom_paths is not None and source == "cuda":
                    self._watch = oom.Watch(self, self._oom_paths)
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
        """Ends the recording; its answers stay.  Returns this object.

        Does nothing without a recording, and in a forked child, which does not share
        its parent's. Raises memlab.Error if memory cannot be read, and MemoryError: the
        recording has then ended without answers.
        """
        if not self.recording or self._pid != os.getpid():
            return self
        self._owners.stop()
        lacks = self._lacks_device()
        if lacks:
            tell(lacks)
        try:
            try:
                self._frozen = self.data()
                if self._look is not None and self._look(self._frozen):
                    self._frozen = self.data()
            except (Error, MemoryError):
                raise
            except BaseException:
                # Ctrl-C while files are read: the recording is saved first, without the
                # text of more files.
                self._code = None
                self._frozen = self.data()
                raise
        finally:
            self._end()
            _annotations.stop()
            self._end_watch()
        return self

    def _lacks_device(self):
        """Why there is nothing to record on the device that was named; empty: there may be.

        Not asked before the program initialises CUDA: torch would then no longer see a
        change of CUDA_VISIBLE_DEVICES.
        """
        index = self._options["device"]
        torch = sys.modules.get("torch")
        if index <= 0 or self._source not in (None, "cuda") or torch is None:
            return ""
        count = torch.cuda.device_count() if torch.cuda.is_initialized() else None
        if count is None or index < count:
            return ""
        have = "1 GPU, cuda:0" if count == 1 else f"{count} GPUs, cuda:0 to cuda:{count - 1}"
        return (
            f"nothing was recorded: device={index} does not exist, and this process has "
            f"{have}; give one of these, or no device to record all"
        )

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
            # The exception inside the block matters more.
            tell(f"the recording is lost: {error}")

    def _read(self):
        self._owners.scan()
        linemaps.take()
        _core.sample(False)
        read = None if self._code is None else self._code.lines
        recording = self._freeze(sources.dialect_keys(), self._rank(), read)
        self._tell_lines()
        return recording

    def _tell_lines(self, most=None):
        """Stores the text of the lines that the file names so far; see Reader.lines."""
        if self._code is None or self._options["file"] is None:
            return
        try:
            self._tell_code(lambda frames: self._code.news(frames, most))
        except Exception:
            # The file then shows no code.
            pass

    def _rank(self):
        """As _place(), or its earlier result: a group is often destroyed before its
        files are written.
        """
        self._place = _place() or self._place
        return self._place

    def data(self) -> _core.Recording:
        """The recording so far, as an immutable memlab._core.Recording.

        While recording, each call reads anew.  Raises memlab.Error if nothing was
        recorded, if memory cannot be read, and in a forked child for its parent's
        recording; MemoryError.
        """
        if self.recording and self._pid != os.getpid():
            raise Error(
                "a forked child cannot read its parent's recording: read it in the parent"
            )
        if self.recording:
            try:
                return self._read()
            except Error:
                # Another thread may have called stop() in between.
                if self.recording or self._frozen is None:
                    raise
        if self._frozen is None:
            raise Error("nothing was recorded; call start() first")
        return self._frozen

    @property
    def path(self) -> str | None:
        """The .mlab file of the recording; None without one."""
        file = self._options["file"]
        return None if file is None else os.fsdecode(file)

    def __repr__(self) -> str:
        # Not read for its name: that takes time, and a look at memory.
        if self.recording:
            return "<memlab.MemorySnapshot: recording>"
        return super().__repr__()
