"""memlab.callbacks.composer.TorchProfiler: torch's profiler over batches of a schedule.

Owns its files, and how many of them are kept.  The memory timeline comes from memlab's
own recording of the same batches.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import re

from memlab import _core
from memlab._errors import tell
from memlab._files import names
from memlab._record.composer_hooks import model_device, progress
from memlab._record.memory_snapshot import MemorySnapshot
from memlab.callbacks._composer.callback import (
    Callback,
    group,
    prepare_folder,
)
from memlab.callbacks._composer.schedule import ProfilerAction, action_of, check_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

log = logging.getLogger("memlab.callbacks.composer")

# Newest events of the recorded batches in a timeline, for each device.
_MAX_ENTRIES = 1_000_000

_ROWS = 20

# Endings of file names; what tells ranks apart comes before.
_ENDING = re.compile(r"(\.pt)?(\.trace)?(\.memory|\.memory_trace)?(\.json|\.html)?(\.gz)?$")


class FileNameError(AssertionError, ValueError):
    """The name of a file is none of its kind; an AssertionError, as of Composer's."""

    __module__ = "memlab"


def _check_html(name, value):
    if value is not None and not value.endswith(".html"):
        raise FileNameError(f"{name} must end with .html, got {value}")


def torch_action(action: object) -> Any:
    """torch's ProfilerAction for one of a schedule, memlab's or Composer's.

    Raises ValueError for anything else.
    """
    from torch.profiler import ProfilerAction as Torch

    return {
        ProfilerAction.SKIP: Torch.NONE,
        ProfilerAction.WARMUP: Torch.WARMUP,
        ProfilerAction.ACTIVE: Torch.RECORD,
        ProfilerAction.ACTIVE_AND_SAVE: Torch.RECORD_AND_SAVE,
    }[action_of(action)]


def _is_ours(callback):
    return isinstance(callback, TorchProfiler)


def _is_torch_profiler(callback):
    """Whether CALLBACK is memlab's TorchProfiler or Composer's, which have one name."""
    return any(kind.__name__ == TorchProfiler.__name__ for kind in type(callback).__mro__)


def _records(profiler):
    return profiler.current_action.name in ("RECORD", "RECORD_AND_SAVE")


class _AtNextEpoch:
    """A state of Composer's at the first batch of the next epoch."""

    def __init__(self, state):
        self._state = state
        self.timestamp = state.timestamp.to_next_epoch()

    def __getattr__(self, name):
        return getattr(self._state, name)


def _ends_epoch(state):
    """Whether the batch after which STATE is given was the last of its epoch; Composer
    still counts it there.
    """
    batches = state.dataloader_len
    return batches is not None and int(state.timestamp.batch_in_epoch) >= int(batches)


class TorchProfiler(Callback):
    """Records batches with torch.profiler, as the schedule of the Trainer's profiler says.

        from memlab.callbacks.composer import Profiler, TorchProfiler, cyclic_schedule

        nothing = dict.fromkeys(
            ["torch_prof_profile_memory", "torch_prof_with_flops"], False
        )
        trainer = Trainer(
            ...,
            profiler=Profiler(cyclic_schedule(), **nothing),
            callbacks=[TorchProfiler(memory_filename="rank{rank}.{batch}.html")],
        )

    Profiler makes one of its torch_prof_ arguments, which is enough for most; so one
    among the callbacks goes with a Profiler, ours or Composer's, that makes none.

    folder: of the files of this rank, a format string with {run_name}, {rank},
        {local_rank}, {world_size}, {local_world_size} and {node_rank}.
    filename: of the trace of a window, below folder, a format string with these and
        {epoch}, {batch}, {batch_in_epoch}, {sample}, {sample_in_epoch}, {token},
        {token_in_epoch}, {total_wct}, {epoch_wct} and {batch_wct}, the last three in
        seconds.  Written after the batch that the schedule calls ACTIVE_AND_SAVE, and
        when the trainer is closed in a window.
    remote_file_name: name under which the loggers upload it, with the same variables;
        None uploads nothing.
    memory_filename: of a page that shows memory by category over the window, with the
        same variables; it ends in .html.  It is of memlab's own recording, for which none
        of record_shapes, profile_memory and with_stack is needed, nor matplotlib.  None
        writes none.
    memory_remote_file_name: as remote_file_name, for that page.
    overwrite: whether files may be replaced; if not, the folder has to be empty at the
        start, except for names that begin with a dot.
    use_gzip: compress traces, whose names then end in .gz.
    record_shapes, profile_memory, with_stack, with_flops: as in torch.profiler.profile.
    num_traces_to_keep: most windows whose files stay in the folder; with each more, after
        it was saved and given to the loggers, those of the oldest go, its memory page
        included.  0 keeps none, -1 all.  What was uploaded stays, as does a window that
        could not be.

    The logger memlab.callbacks.composer has, at INFO, a record of each window's trace, one
    of its memory timeline, and at the close tables of the last window's operators, by time
    and, with profile_memory, by memory: on a GPU two each, else one.  Uploads are at DEBUG.

    saved_traces: a list of (timestamp, paths), the newest last: of each window whose
        files are there, Composer's timestamp and the trace's path on each rank by rank.
        A path is good on that rank's node.

    Raises TypeError or ValueError for invalid arguments; at the start of the
    training, on all ranks, FileExistsError for a folder that is not empty, and
    RuntimeError if the trainer has no profiler.
    """

    def __init__(
        self,
        folder: str = "{run_name}/torch_traces",
        filename: str = "rank{rank}.{batch}.pt.trace.json",
        remote_file_name: str | None = (
            "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json"
        ),
        memory_filename: str | None = None,
        memory_remote_file_name: str | None = (
            "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.trace.memory.html"
        ),
        overwrite: bool = False,
        use_gzip: bool = False,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = False,
        with_flops: bool = True,
        num_traces_to_keep: int = -1,
    ) -> None:
        check_count("num_traces_to_keep", num_traces_to_keep, -1)
        folder = names.check_template(folder, "folder")
        filename = names.check_template(filename, "filename")
        for name, template in (
            ("remote_file_name", remote_file_name),
            ("memory_filename", memory_filename),
            ("memory_remote_file_name", memory_remote_file_name),
        ):
            if template is not None:
                names.check_template(template, name)
        _check_html("memory_filename", memory_filename)
        _check_html("memory_remote_file_name", memory_remote_file_name)
        if use_gzip and not filename.endswith(".gz"):
            filename += ".gz"
        if use_gzip and remote_file_name and not remote_file_name.endswith(".gz"):
            remote_file_name += ".gz"
        self.folder = folder
        self.filename = filename
        self.remote_file_name = remote_file_name
        self.memory_filename = memory_filename
        self.memory_remote_file_name = memory_remote_file_name
        self.overwrite = overwrite
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.num_traces_to_keep = num_traces_to_keep
        self.saved_traces: list[tuple[Any, list[pathlib.Path]]] = []
        self._files = []  # of saved_traces, those of this rank
        self._mine = {}  # where the files of this run are, by the paths of their names
        self._state = self._logger = None
        self._profiler = self._action = self._snapshot = None
        self._began = self._timeline = self._waits = False
        self._batches = 0  # ended in the current window

    # ---- The engine's events ----

    def init(self, state: Any, logger: Any) -> None:
        """Makes the folder.  Raises as documented at the class."""
        # An earlier trainer may not have been closed.
        self.close(state, logger)
        if state.profiler is None:
            raise RuntimeError(
                "The Composer Profiler was not enabled, which is required to use the "
                f"{type(self).__name__}. To enable, set the `profiler` argument of the "
                "Trainer."
            )
        torch_action(state.profiler.schedule(state))
        problem = None
        try:
            prepare_folder(self.folder, state.run_name, self.overwrite)
        except (OSError, ValueError) as error:
            problem = error
        self._ranks = _ranks_of_all(problem)
        # The program may change its working directory.
        self._start = os.getcwd()
        self._state, self._logger = state, logger
        self._began = self._waits = self._saved = False
        self._ended = 0
        self._timeline = self.memory_filename is not None

    def batch_start(self, state: Any, logger: Any) -> None:
        """Begins before the first batch; logs the profiler's action in this one."""
        try:
            if not self._began:
                self._began = True
                self._begin(state)
            elif self._waits and self._profiler is not None:
                self._begin_epoch(state)
        except Exception as error:
            self._give_up(error)
        if self._profiler is not None:
            with self._guard("the profiler's state was not logged"):
                logger.log_traces({"profiler/state": self._profiler.current_action.name})

    def batch_end(self, state: Any, logger: Any) -> None:
        """Advances to the next batch; saves the window that ended with this one."""
        if self._profiler is None:
            return
        self._ended += 1
        try:
            self._step(state)
        except Exception as error:
            self._give_up(error)

    def close(self, state: Any, logger: Any) -> None:
        """Ends the profiler, saves the current window, and logs tables of the last."""
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            # A warm-up's events belong to no window.
            warming = profiler.current_action.name == "WARMUP"
            with self._guard("the last window was not saved"):
                if not self._batches:
                    # It has no batch, and its name may be that of the window before.
                    profiler.on_trace_ready = None
                profiler.__exit__(None, None, None)
            if not warming:
                with self._guard("no tables were logged"):
                    self._log_tables(profiler)
            if self._ended and not self._saved and not self._told:
                batches = "1 batch" if self._ended == 1 else f"{self._ended} batches"
                tell(
                    f"{type(self).__name__}: nothing was recorded: the schedule has no "
                    f"window in {batches} of the training; give it fewer to skip, to wait "
                    "or to warm up"
                )
        self._drop_snapshot()
        self._state = self._logger = None

    # ---- torch's profiler ----

    def _begin(self, state):
        import torch.profiler

        self._action = self._next(state)
        profiler = torch.profiler.profile(
            schedule=lambda step: self._action,
            on_trace_ready=self._save,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        profiler.preset_metadata_json("global_rank", json.dumps(names.ranks()["rank"]))
        self._profiler = profiler
        profiler.__enter__()
        self._follow()

    def _step(self, state):
        profiler = self._profiler
        recorded = _records(profiler)
        self._batches += recorded
        ends_epoch = _ends_epoch(state)
        action = self._next(_AtNextEpoch(state) if ends_epoch else state)
        # There may be no next epoch.  A window begun in vain would replace the last
        # one, whose tables close() logs.
        self._waits = ends_epoch and self._begins(action)
        self._action = type(action).NONE if self._waits else action
        if recorded and self._action.name in ("NONE", "WARMUP"):
            # Also if an epoch of unknown length ended within a window, which torch
            # would drop.
            profiler.current_action = type(action).RECORD_AND_SAVE
        profiler.step()
        self._follow()

    def _begins(self, action):
        """Whether ACTION begins a warm-up or a window, and does not continue one."""
        now = self._profiler.current_action.name
        if action.name == "WARMUP":
            return now != "WARMUP"
        return action.name != "NONE" and now in ("NONE", "RECORD_AND_SAVE")

    def _begin_epoch(self, state):
        """Begins, at the first batch of an epoch, the schedule's action there."""
        self._waits = False
        self._action = self._next(state)
        # torch counts steps, and this is none.
        self._profiler.step_num -= 1
        self._profiler.step()
        self._follow()

    def _next(self, state):
        """The action in the batch of STATE."""
        import torch

        action = torch_action(state.profiler.schedule(state))
        idle = self._profiler is None or self._profiler.current_action.name == "NONE"
        if not idle or action.name == "NONE":
            return action
        # torch allows one at a time, and would end the other one.
        if self._is_second(state):
            self._complain(
                "batches are not recorded",
                "another TorchProfiler records them; a Profiler makes none with "
                "torch_prof_profile_memory=False and torch_prof_with_flops=False",
            )
            return type(action).NONE
        if torch.autograd._profiler_enabled():
            self._complain("batches are not recorded", "another torch profiler is at work")
            return type(action).NONE
        return action

    def _is_second(self, state):
        """Whether another TorchProfiler of the Trainer, Composer's or an earlier one of
        memlab's, records the same batches.  Its warm-up, which torch does not show, would be
        spoilt.
        """
        others = [c for c in getattr(state, "callbacks", ()) if _is_torch_profiler(c)]
        return any(c is not self for c in others[:1]) or not all(map(_is_ours, others))

    def _give_up(self, error):
        self._complain(
            "torch's profiler failed, and is off for the rest of the run",
            f"{type(error).__name__}: {error}",
        )
        profiler, self._profiler = self._profiler, None
        self._drop_snapshot()
        if profiler is not None:
            with contextlib.suppress(Exception):
                import torch

                if not torch.autograd._profiler_enabled():
                    # torch would otherwise begin something unprepared, and crash.
                    profiler.current_action = type(profiler.current_action).NONE
                profiler.on_trace_ready = None
                profiler.__exit__(None, None, None)

    def _log_tables(self, profiler):
        if profiler.profiler is None or not log.isEnabledFor(logging.INFO):
            return
        keys = ["cpu_time_total", "self_cpu_memory_usage"]
        if "CUDA" in {activity.name for activity in profiler.activities}:
            keys += ["device_time_total", "self_device_memory_usage"]
        averages = profiler.key_averages()
        if not averages:
            return
        for key in keys:
            if self.profile_memory or not key.endswith("memory_usage"):
                log.info("%s", averages.table(sort_by=key, row_limit=_ROWS))

    # ---- memlab's recording of the same batches ----

    def _follow(self):
        """Records while torch's profiler does."""
        if not self._timeline or _records(self._profiler) == (self._snapshot is not None):
            return
        if self._snapshot is not None:
            self._drop_snapshot()
            return
        self._timeline = False
        with self._guard("no memory timelines are written"):
            device = model_device(self._state.model)
            on_cpu = device is not None and device.type == "cpu"
            snapshot = MemorySnapshot(
                max_entries=_MAX_ENTRIES,
                source="cpu" if on_cpu else "cuda",
                source_lines=False,
            )
            self._snapshot = snapshot.start()
            self._timeline = True

    def _drop_snapshot(self):
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            with contextlib.suppress(Exception):
                snapshot.stop()

    # ---- Files ----

    def _save(self, profiler):
        """Called by torch at the end of a window; must not raise."""
        self._batches = 0
        self._saved = True
        snapshot, self._snapshot = self._snapshot, None
        recording = None
        if snapshot is not None:
            with self._guard("the memory of a window was not read"):
                recording = snapshot.stop().data()
        with self._guard("a window was not saved"):
            self._save_files(profiler, recording)

    def _save_files(self, profiler, recording):
        state, reached = self._state, progress(self._state)
        files, sent = [], True
        with self._guard("a trace was not written"):
            path = self._unused(self._path(self.filename, reached))
            log.info("writing torch's trace of the window to %s", path)
            _export(profiler, path)
            files.append(path)
            with self._guard("a trace handler failed"):
                state.profiler.record_chrome_json_trace_file(path)
            sent &= self._upload(path, self.remote_file_name, reached)
        if recording is None:
            log.info(
                "no memory timeline of the window is written: %s",
                "memory_filename is None"
                if self.memory_filename is None
                else "its memory was not recorded",
            )
        else:
            with self._guard("a memory timeline was not written"):
                path = self._unused(self._path(self.memory_filename, reached))
                log.info("writing the window's memory timeline to %s", path)
                self._write_timeline(recording, path, reached)
                files.append(path)
                sent &= self._upload(path, self.memory_remote_file_name, reached)
        if files:
            paths = [self._path(self.filename, reached, ranks) for ranks in self._ranks]
            paths = [pathlib.Path(self._mine.get(path, path)) for path in paths]
            self.saved_traces.append((state.timestamp, paths))
            # Files that are nowhere else stay.
            self._files.append(files if sent else [])
        self._remove_oldest()

    def _path(self, template, reached, ranks=None):
        """The path of this rank's file, or of the file of the rank with these RANKS."""
        ranks = ranks or names.ranks()
        variables = {"run_name": self._state.run_name, **ranks}
        folder = os.path.join(self._start, names.fill(self.folder, **variables))
        name = names.fill(template, reached, **variables)
        apart = names.apart(self.folder, template, rank=ranks["rank"])
        return names.inside(folder, _ENDING.sub(rf"{apart}\g<0>", name, count=1))

    def _unused(self, path):
        """PATH, or beside it where a run that this one resumes has written it."""
        if self.overwrite or path in self._mine:
            return self._mine.get(path, path)
        ending = _ENDING.search(path).group()
        prefix, beside = names.unused(path[: len(path) - len(ending)], [ending])
        if beside:
            tell(f"{path} exists; this window is written beside it, to {prefix}{ending}")
        self._mine[path] = prefix + ending
        return prefix + ending

    def _upload(self, path, template, reached):
        if template is None:
            return True
        name = names.fill(template, reached, run_name=self._state.run_name)
        name = _ENDING.sub(rf"{names.apart(template)}\g<0>", name, count=1)
        log.debug("uploading %s as %s", path, name)
        return self._send(self._logger, path, name, self.overwrite)

    def _write_timeline(self, recording, path, reached):
        device = model_device(self._state.model)
        index = None if device is None else device.index
        if index is not None and index >= recording.device_count:
            index = None
        title = f"{self._state.run_name}, batch {reached.batch}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _core.write_file(path, recording.timeline_page(index, title))

    def _remove_oldest(self):
        if self.num_traces_to_keep < 0:
            return
        while len(self.saved_traces) > self.num_traces_to_keep:
            self.saved_traces.pop(0)
            files = self._files.pop(0)
            # A later window may have been saved under the same name.
            later = {path for paths in self._files for path in paths}
            for path in files:
                if path not in later:
                    with self._guard("an old trace was not removed"):
                        os.remove(path)


def _ranks_of_all(problem):
    """The ranks() of every rank, by rank.  Raises PROBLEM, or another rank's, on all
    ranks.  So no rank writes before the others have looked for files.
    """
    everyone = [(names.ranks(), problem)]
    distributed = group()
    if distributed is not None:
        mine, everyone = everyone[0], [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, mine)
    # This rank's own first: it names its folder.
    for found in (problem, *(theirs for _, theirs in everyone)):
        if found is not None:
            raise found
    return [ranks for ranks, _ in everyone]


def _export(profiler, path):
    """Writes the trace to PATH, whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)


    def export(to):
        # torch compresses by the name's ending.
        profiler.export_chrome_trace(to)
        if not os.path.getsize(to):
            # torch prints why, and leaves what it has written beside.
            with contextlib.suppress(OSError):
                os.remove(f"{to}.tmp")
            raise OSError(f"torch could not write {path}, as on a full disk")

    _core.write_file(path, export)
