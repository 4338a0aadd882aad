"""memlab.callbacks.composer under a stand-in of Composer's trainer: what is written, kept
and uploaded when, and that the training notices nothing.  tests/composer/ has the real
one."""

import enum
import gzip
import inspect
import itertools
import json
import os
import pickle
import re
import stat
import types
from pathlib import Path

import pytest
from warm import run as run_warm

from memlab.callbacks import composer
from memlab.callbacks._composer_profiler import Marker
from memlab.callbacks.composer import (
    MemoryMonitor,
    OOMObserver,
    Profiler,
    ProfilerAction,
    TorchProfiler,
    cyclic_schedule,
)

# A trainer that does what Composer's does, in its order, as far as callbacks see it.
PRELUDE = """
import dataclasses, datetime, json, logging, os, sys, types, warnings
import torch

@dataclasses.dataclass(frozen=True)
class Timestamp:
    epoch: int = 0
    batch: int = 0
    batch_in_epoch: int = 0
    sample: int = 0
    sample_in_epoch: int = 0
    token: int = 0
    token_in_epoch: int = 0
    iteration: int = 0
    total_wct: datetime.timedelta = datetime.timedelta()
    epoch_wct: datetime.timedelta = datetime.timedelta()
    batch_wct: datetime.timedelta = datetime.timedelta()

    def to_next_batch(self):
        return dataclasses.replace(
            self, batch=self.batch + 1, batch_in_epoch=self.batch_in_epoch + 1,
            sample=self.sample + 8, sample_in_epoch=self.sample_in_epoch + 8)

    def to_next_epoch(self):
        return dataclasses.replace(
            self, epoch=self.epoch + 1, batch_in_epoch=0, sample_in_epoch=0)

class Logger:
    refuses = None

    def __init__(self):
        self.uploads, self.metrics, self.traces = [], [], []

    def upload_file(self, remote_file_name, file_path, *, overwrite=False):
        if self.refuses:
            raise self.refuses
        size = os.path.getsize(file_path)
        self.uploads.append([remote_file_name, file_path, overwrite, size])

    def log_metrics(self, metrics, step=None):
        self.metrics.append(metrics)

    def log_traces(self, traces):
        self.traces.append(traces["profiler/state"])

class Trainer:
    def __init__(self, *callbacks, profiler=None, device="cuda", epochs=1, batches=10,
                 run_name="r", model=None, timestamp=Timestamp()):
        self.model = model or torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).to(device)
        parameters = list(self.model.parameters()) or [torch.zeros(1)]
        self.optimizer = torch.optim.Adam(parameters)
        self.device, self.epochs, self.batches = device, epochs, batches
        self.logger = Logger()
        self.state = types.SimpleNamespace(
            run_name=run_name, model=self.model, timestamp=timestamp, profiler=profiler,
            callbacks=list(callbacks), dataloader_len=batches)
        if profiler is not None:
            profiler.bind_to_state(self.state)
        self.event("init")

    def event(self, name):
        event = types.SimpleNamespace(value=name)
        for callback in self.state.callbacks:
            callback.run_event(event, self.state, self.logger)

    def fit(self, at_batch_end=lambda trainer: None):
        self.event("fit_start")
        for _ in range(self.epochs):
            self.event("epoch_start")
            for _ in range(self.batches):
                self.event("batch_start")
                inputs = torch.ones(8, 64, device=self.device)
                self.model(inputs).sum().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.event("after_train_batch")
                self.state.timestamp = self.state.timestamp.to_next_batch()
                self.event("batch_end")
                at_batch_end(self)
            self.state.timestamp = self.state.timestamp.to_next_epoch()
            self.event("epoch_end")
        self.event("fit_end")
        return self

    def close(self):
        for callback in self.state.callbacks:
            callback.close(self.state, self.logger)
        for callback in self.state.callbacks:
            callback.post_close()
        return self

def files(folder="."):
    return sorted(os.path.relpath(os.path.join(root, name), folder)
                  for root, _, names in os.walk(folder) for name in names)

from memlab.callbacks.composer import *

NOTHING = dict(torch_prof_profile_memory=False, torch_prof_with_flops=False)
"""


@pytest.fixture(scope="module")
def program(device_environment, tmp_path_factory):
    """program(source) runs it after PRELUDE; returns what it gave tell(), its stderr, and
    the folder in which it ran."""

    def start(source):
        folder = tmp_path_factory.mktemp("run")
        tell = "\ntell = lambda **what: print('TOLD', json.dumps(what, default=str))\n"
        done = run_warm(PRELUDE + tell + source, env=device_environment, cwd=folder)
        if done.returncode:
            pytest.fail(done.stdout + done.stderr, pytrace=False)
        told = {}
        for line in done.stdout.splitlines():
            if line.startswith("TOLD "):
                told.update(json.loads(line[5:]))
        return types.SimpleNamespace(**told, err=done.stderr, folder=folder)

    return start


# ---- Arguments ----

TRACE = "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json"
TIMELINE = "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.trace.memory.html"


def defaults_of(function):
    return {p.name: p.default for p in inspect.signature(function).parameters.values()}


def test_signatures_are_composers():
    assert list(defaults_of(TorchProfiler).items()) == [
        ("folder", "{run_name}/torch_traces"),
        ("filename", "rank{rank}.{batch}.pt.trace.json"),
        ("remote_file_name", TRACE),
        ("memory_filename", None),
        ("memory_remote_file_name", TIMELINE),
        ("overwrite", False),
        ("use_gzip", False),
        ("record_shapes", False),
        ("profile_memory", True),
        ("with_stack", False),
        ("with_flops", True),
        ("num_traces_to_keep", -1),
    ]
    assert list(defaults_of(OOMObserver).items()) == [
        ("max_entries", 100_000),
        ("folder", "{run_name}/torch_traces"),
        ("filename", "rank{rank}_oom"),
        ("remote_file_name", "{run_name}/oom_traces/rank{rank}_oom"),
        ("overwrite", False),
    ]
    monitor = inspect.signature(MemoryMonitor).parameters.values()
    assert [(p.name, p.default, p.kind.name) for p in monitor] == [
        ("memory_keys", None, "POSITIONAL_OR_KEYWORD"),
        ("dist_aggregate_batch_interval", None, "POSITIONAL_OR_KEYWORD"),
        ("tensorboard", None, "KEYWORD_ONLY"),
        ("prometheus", None, "KEYWORD_ONLY"),
    ]
    assert defaults_of(cyclic_schedule) == {
        "skip_first": 0, "wait": 0, "warmup": 1, "active": 4, "repeat": 1,
    }  # fmt: skip
    wrapper = defaults_of(Profiler)
    for name, default in defaults_of(TorchProfiler).items():
        if name != "memory_remote_file_name":
            assert wrapper[f"torch_prof_{name}"] == default
    assert wrapper["torch_prof_memory_remote_file_name"] == (
        "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.memory_trace.html"
    )


def test_every_public_name_is_typed_and_documented():
    for name in composer.__all__:
        thing = getattr(composer, name)
        assert inspect.getdoc(thing), name
        for member, value in [(name, thing), *vars(thing).items()]:
            if member.startswith("_") or not inspect.isfunction(value):
                continue
            signature = inspect.signature(value)
            assert inspect.getdoc(value), (name, member)
            assert signature.return_annotation is not signature.empty, (name, member)
            for parameter in signature.parameters.values():
                typed = parameter.annotation is not parameter.empty
                assert typed or parameter.name == "self", (name, member, parameter)


@pytest.mark.parametrize(
    ("error", "words", "make"),
    [
        (ValueError, "num_traces_to_keep", lambda: TorchProfiler(num_traces_to_keep=-2)),
        (TypeError, "num_traces_to_keep", lambda: TorchProfiler(num_traces_to_keep=None)),
        (TypeError, "filename", lambda: TorchProfiler(filename=None)),
        (ValueError, "folder", lambda: TorchProfiler(folder="{")),
        (TypeError, "folder", lambda: OOMObserver(folder=3)),
        (ValueError, "filename", lambda: OOMObserver(filename="")),
        (ValueError, "max_entries", lambda: OOMObserver(max_entries=0)),
        (TypeError, "memory_keys", lambda: MemoryMonitor(["reserved_bytes"])),
        (ValueError, "batch_interval", lambda: MemoryMonitor(None, 0)),
        (TypeError, "schedule", lambda: Profiler(None)),
        (ValueError, "active", lambda: cyclic_schedule(active=0)),
        (ValueError, "skip_first", lambda: cyclic_schedule(skip_first=-1)),
        (TypeError, "repeat", lambda: cyclic_schedule(repeat=1.5)),
    ],
)
def test_wrong_arguments_are_told_at_once(error, words, make):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("name", ["memory_filename", "memory_remote_file_name"])
@pytest.mark.parametrize("error", [AssertionError, ValueError])
def test_a_timeline_is_a_page(name, error):
    with pytest.raises(error, match=f"{name} must end with .html, got x.json"):
        TorchProfiler(**{name: "x.json"})


def test_gzip_is_in_the_names():
    plain = TorchProfiler(filename="a.json", remote_file_name="b/a.json", use_gzip=True)
    assert (plain.filename, plain.remote_file_name) == ("a.json.gz", "b/a.json.gz")
    given = TorchProfiler(filename="a.json.gz", remote_file_name=None, use_gzip=True)
    assert (given.filename, given.remote_file_name) == ("a.json.gz", None)


# ---- The schedule and the profiler around it ----


def state_at(batch, batches=None, resumed=0):
    return types.SimpleNamespace(
        timestamp=types.SimpleNamespace(batch_in_epoch=batch),
        dataloader_len=batches,
        profiler=types.SimpleNamespace(resumption_batch_idx=resumed),
    )


def letters(schedule, count, **state):
    """S, W, A or ! for each batch of an epoch."""
    shown = {"skip": "S", "warmup": "W", "active": "A", "active_and_save": "!"}
    actions = [schedule(state_at(batch, **state)) for batch in range(count)]
    return "".join(shown[action.value] for action in actions)


@pytest.mark.parametrize(
    ("arguments", "state", "expected"),
    [
        ({"skip_first": 1, "wait": 2, "warmup": 3, "active": 4}, {}, "SSSWWWAAA!SSS"),
        ({}, {}, "WAAA!SSSSSSSS"),
        ({"repeat": 2}, {}, "WAAA!WAAA!SSS"),
        ({"repeat": 0, "active": 2}, {}, "WA!WA!WA!WA!W"),
        # The last batch of an epoch saves, where it is recorded.
        ({"repeat": 0}, {"batches": 13}, "WAAA!WAAA!WA!"),
        ({"repeat": 0}, {"batches": 11}, "WAAA!WAAA!WAA"),
        ({"warmup": 0, "active": 1, "repeat": 0, "wait": 1}, {}, "S!S!S!S!S!S!S"),
        ({"skip_first": 2, "active": 1}, {"resumed": 3}, "SSSSSW!SSSSSS"),
    ],
)
def test_the_schedule(arguments, state, expected):
    assert letters(cyclic_schedule(**arguments), 13, **state) == expected


def test_a_schedule_needs_no_profiler():
    state = state_at(0)
    state.profiler = None
    assert cyclic_schedule(warmup=0)(state) == ProfilerAction.ACTIVE


class ComposersAction(enum.Enum):
    SKIP = "skip"
    WARMUP = "warmup"
    ACTIVE = "active"
    ACTIVE_AND_SAVE = "active_and_save"


def test_actions_are_equal_to_composers():
    for ours, theirs in itertools.product(ProfilerAction, ComposersAction):
        same = ours.name == theirs.name
        assert (ours == theirs) is (theirs == ours) is same
        assert (ours != theirs) is (theirs != ours) is not same
        assert (theirs in [ours]) is (ours in [theirs]) is same


def test_actions_for_torch(torch):
    from memlab.callbacks._torch_profiler import torch_action

    expected = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
    assert [torch_action(action).name for action in ProfilerAction] == expected
    assert [torch_action(action).name for action in ComposersAction] == expected
    for wrong in (None, "record", 3):
        with pytest.raises(ValueError, match="unexpected action"):
            torch_action(wrong)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))
def test_composers_rule_for_timelines(flags):
    names = ("with_stack", "record_shapes", "profile_memory")
    given = {f"torch_prof_{name}": flag for name, flag in zip(names, flags, strict=True)}
    make = {"schedule": cyclic_schedule(), "torch_prof_memory_filename": "m.html", **given}
    if all(flags):
        assert Profiler(**make)._callbacks[0].memory_filename == "m.html"
        return
    with pytest.raises(ValueError) as caught:
        Profiler(**make)
    for name, flag in given.items():
        assert f"{name}={flag}" in str(caught.value)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_the_profiler_makes_a_torch_profiler_where_it_records_something(flags):
    names = ("record_shapes", "profile_memory", "with_stack", "with_flops")
    given = {f"torch_prof_{name}": flag for name, flag in zip(names, flags, strict=True)}
    state = types.SimpleNamespace(callbacks=[])
    profiler = Profiler(
        cyclic_schedule(),
        torch_prof_remote_file_name="s3://bucket/{run_name}/trace.json",
        torch_prof_num_traces_to_keep=3,
        **given,
    )
    profiler.bind_to_state(state)
    made = [c for c in state.callbacks if isinstance(c, TorchProfiler)]
    assert state.callbacks == [profiler, *made]
    assert len(made) == any(flags)
    if made:
        assert tuple(getattr(made[0], name) for name in names) == flags
        assert made[0].remote_file_name == "{run_name}/trace.json"
        assert made[0].num_traces_to_keep == 3
    # Of these Composer makes uploaders.
    assert profiler.remote_filenames[0] == "s3://bucket/{run_name}/trace.json"


class Handler:
    """A trace handler that keeps what it is told."""

    remote_file_name = "gs://bucket/traces/x.json"
    merged_trace_remote_file_name = None

    def __init__(self):
        self.told = []

    def process_duration_event(
        self, name, categories, is_start, timestamp, wall_clock_time_ns
    ):
        self.told.append((name, "start" if is_start else "finish", *categories))

    def process_instant_event(self, name, categories, timestamp, wall_clock_time_ns):
        self.told.append((name, "instant", *categories))

    def process_counter_event(
        self, name, categories, timestamp, wall_clock_time_ns, values
    ):
        self.told.append((name, values, *categories))

    def process_chrome_json_trace_file(self, filepath):
        assert isinstance(filepath, Path)
        self.told.append(filepath.name)


def test_markers_tell_handlers_what_the_schedule_records():
    handler = Handler()
    action = ProfilerAction.SKIP
    profiler = Profiler(lambda state: action, handler)
    assert handler.remote_file_name == "traces/x.json"
    assert "gs://bucket/traces/x.json" in profiler.remote_filenames
    with pytest.raises(RuntimeError, match="Trainer"):
        profiler.marker("early")
    state = types.SimpleNamespace(callbacks=[], timestamp=None)
    profiler.bind_to_state(state)
    assert state.callbacks[-1] is handler

    # As the engine gives them: Composer's own actions.
    marker = profiler.marker("m", actions=[ComposersAction.ACTIVE], categories=["c"])
    assert isinstance(marker, Marker) and profiler.marker("m", categories=["d"]) is marker
    with marker:
        marker.instant()
    assert handler.told == []
    action = ProfilerAction.ACTIVE
    with marker:
        action = ProfilerAction.SKIP  # what began is also ended
    action = ProfilerAction.ACTIVE
    marker(lambda: marker.counter({"n": 1}))()
    marker.start()  # an exception came: it never finishes
    marker.start()
    marker.finish()
    marker.finish()
    assert handler.told == [
        ("m", "start", "d"), ("m", "finish", "d"),
        ("m", "start", "d"), ("m", {"n": 1}, "d"), ("m", "finish", "d"),
        ("m", "start", "d"), ("m", "start", "d"), ("m", "finish", "d"),
    ]  # fmt: skip
    del handler.told[:]
    twice = profiler.marker("i", [ProfilerAction.ACTIVE], True, True)
    with twice:
        pass
    kinds = [told[1] for told in handler.told]
    assert kinds == ["start", "instant", "finish", "instant"]
    profiler.record_chrome_json_trace_file("folder/trace.json")
    assert handler.told[-1] == "trace.json"


def test_no_schedule_is_asked_for_nobody():
    """Composer wraps every callback of every event in a marker."""
    calls = []
    profiler = Profiler(calls.append)
    profiler.bind_to_state(types.SimpleNamespace(callbacks=[]))
    with profiler.marker("m"):
        pass
    assert calls == []


def test_a_resumed_run_skips_what_it_had_trained():
    profiler = Profiler(cyclic_schedule(active=1))
    state = state_at(7)
    profiler.after_load(state, None)
    assert profiler.resumption_batch_idx == 7
    state.profiler = profiler
    assert profiler.schedule(state) == ProfilerAction.WARMUP


def test_torch_profiler_needs_a_profiler(tmp_path):
    state = types.SimpleNamespace(profiler=None, run_name="r")
    with pytest.raises(RuntimeError, match="TorchProfiler. To enable, set the `profiler`"):
        TorchProfiler(folder=str(tmp_path)).init(state, None)


@pytest.mark.parametrize(
    "make",
    [
        lambda **given: TorchProfiler(**given),
        lambda **given: OOMObserver(**given),
    ],
)
def test_a_folder_with_files_is_refused_unless_overwritten(make, tmp_path):
    state = types.SimpleNamespace(
        profiler=types.SimpleNamespace(schedule=lambda state: ProfilerAction.SKIP),
        run_name=tmp_path.name,
        model=types.SimpleNamespace(parameters=lambda: iter(())),
    )
    folder = tmp_path / "there"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "a").touch()
    (folder / "deep").mkdir()
    (folder / "deep" / "a.txt").touch()
    with pytest.raises(FileExistsError, match="is not empty.*a.txt exists"):
        make(folder=str(folder)).init(state, None)


def test_callbacks_keep_nothing_in_checkpoints():
    for callback in (TorchProfiler(), OOMObserver(), MemoryMonitor()):
        assert callback.state_dict() == {}
        callback.load_state_dict({})
        callback.run_event(types.SimpleNamespace(value="eval_start"), None, None)


# ---- torch's profiler ----

PROFILER = """
class Handler:
    told = []
    run_event = close = post_close = lambda *arguments: None
    def process_chrome_json_trace_file(self, path):
        self.told.append(str(path))

# The batch of the names counts from 1: the 42nd is the second that is recorded.
handler = Handler()
profiler = Profiler(
    cyclic_schedule(active=2), handler, torch_prof_record_shapes=True,
    torch_prof_with_stack=True, torch_prof_memory_filename="rank{rank}.{batch}.html")
timestamp = Timestamp(epoch=1, batch=39)
trainer = Trainer(profiler=profiler, batches=4, run_name="awesome-training-run",
                  timestamp=timestamp).fit().close()
tell(first=dict(files=files("awesome-training-run"), uploads=trainer.logger.uploads,
                states=trainer.logger.traces, handler=handler.told,
                saved=[[t.batch, paths] for t, paths in
                       profiler._callbacks[0].saved_traces]))

# Two epochs, of which each has two windows: what stays.
def kept(keep, filename="{batch}.json", **options):
    folder = f"keep{keep}" + str(len(os.listdir()))
    torch_profiler = TorchProfiler(
        folder=folder + "/{run_name}", filename=filename, memory_filename=filename + ".html",
        num_traces_to_keep=keep, **options)
    seen = []
    trainer = Trainer(
        torch_profiler, profiler=Profiler(
            cyclic_schedule(skip_first=1, active=1, repeat=2), **NOTHING),
        epochs=2, batches=6)
    trainer.fit(lambda trainer: seen.append(len(torch_profiler.saved_traces))).close()
    saved = [[t.batch, [os.path.relpath(p, folder) for p in paths]]
             for t, paths in torch_profiler.saved_traces]
    return dict(files=files(folder + "/r"), uploads=len(trainer.logger.uploads),
                saved=saved, most=max(seen), states=trainer.logger.traces)

tell(all=kept(-1), one=kept(1), none=kept(0), zipped=kept(1, use_gzip=True),
     same=kept(1, filename="same.json"))

# Stacks from the first batch on, without a warm-up, some frames deep.
def deep(frames, call):
    return deep(frames - 1, call) if frames else call()

def without_warmup(active):
    profiler = Profiler(cyclic_schedule(warmup=0, active=active, repeat=0),
                        torch_prof_with_stack=True, torch_prof_record_shapes=True,
                        torch_prof_folder=f"deep{active}")
    trainer = deep(9, lambda: Trainer(profiler=profiler, batches=3))
    deep(3, trainer.fit)
    trainer.close()
    return files(f"deep{active}")

tell(deep=[without_warmup(1), without_warmup(2)])

# Closed in a window, after one, and while warming up; and the tables.
records = []
class Tables(logging.Handler):
    def emit(self, record):
        records.append(record.getMessage())
log = logging.getLogger("memlab.callbacks.composer")
log.addHandler(Tables())
log.setLevel(logging.INFO)

def closed(batches, tables=None):
    profiler = Profiler(cyclic_schedule(wait=1, active=2, repeat=2), torch_prof_folder="c{run_name}")
    trainer = Trainer(profiler=profiler, batches=20, run_name=str(batches))
    trainer.batches = batches
    del records[:]
    trainer.fit().close().close()
    return dict(files=files(f"c{batches}"), tables=records[:])

tell(closed={n: closed(n) for n in (0, 1, 3, 4, 5)})
log.setLevel(logging.WARNING)

# An epoch of unknown length that ends in a window; Composer's own actions.
import enum
class Theirs(enum.Enum):
    SKIP = "skip"
    WARMUP = "warmup"
    ACTIVE = "active"
plan = iter([Theirs.WARMUP, Theirs.WARMUP, Theirs.ACTIVE, Theirs.ACTIVE, Theirs.SKIP,
             Theirs.SKIP])
trainer = Trainer(profiler=Profiler(lambda state: next(plan), torch_prof_folder="u"),
                  batches=4)
trainer.state.dataloader_len = None
trainer.fit().close()
tell(unknown=[files("u"), trainer.logger.traces])

# On the CPU.
trainer = Trainer(TorchProfiler(folder="cpu", memory_filename="{batch}.html"),
                  profiler=Profiler(cyclic_schedule(active=1), **NOTHING),
                  device="cpu", batches=3).fit().close()
tell(cpu=files("cpu"))
"""


@pytest.fixture(scope="module")
def profiled(program):
    return program(PROFILER)


@pytest.mark.cuda
def test_a_window_is_saved_under_its_names(profiled):
    first, folder = profiled.first, profiled.folder / "awesome-training-run"
    trace = "torch_traces/rank0.42.pt.trace.json"
    page = "torch_traces/rank0.42.html"
    assert first["files"] == [page, trace]
    assert [upload[:3] for upload in first["uploads"]] == [
        [f"awesome-training-run/{trace}", str(folder / trace), False],
        [
            "awesome-training-run/torch_memory_traces/rank0.42.pt.memory_trace.html",
            str(folder / page),
            False,
        ],
    ]
    for _, path, _, size in first["uploads"]:
        assert size == os.path.getsize(path)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert first["handler"] == [str(folder / trace)]
    assert first["saved"] == [[42, [str(folder / trace)]]]
    # At the start of each batch, what it is.
    assert first["states"] == ["WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE"]


@pytest.mark.cuda
def test_a_trace_has_what_was_asked_for(profiled):
    path = profiled.folder / "awesome-training-run/torch_traces/rank0.42.pt.trace.json"
    trace = json.loads(path.read_text())
    assert trace["global_rank"] == 0
    events = trace["traceEvents"]
    steps = {e["name"] for e in events if e["name"].startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#1", "ProfilerStep#2"}
    asked = {key for event in events for key in event.get("args", {})}
    assert {"Input Dims", "Total Allocated"} <= asked
    assert any(event.get("cat") == "python_function" for event in events)
    assert (trace["with_flops"], trace["with_stack"], trace["profile_memory"]) == (1, 1, 1)


@pytest.mark.cuda
def test_a_timeline_shows_memory_by_category(profiled):
    page = (profiled.folder / "awesome-training-run/torch_traces/rank0.42.html").read_text()
    assert "awesome-training-run, batch 42" in page
    assert "max allocated" in page and "max reserved" in page
    for category in ("parameter", "gradient", "optimizer state", "activation"):
        assert category in page.lower(), category


@pytest.mark.cuda
def test_old_traces_go_when_a_new_one_is_saved(profiled):
    # Batches 3 and 5 of the first epoch, 9 and 11 of all.
    page = ".html"
    saved = [[number, [f"r/{number}.json"]] for number in (3, 5, 9, 11)]
    every = sorted(f"{n}.json{end}" for n in (3, 5, 9, 11) for end in ("", page))
    assert profiled.all["files"] == every
    assert profiled.all["saved"] == saved
    assert profiled.one["files"] == ["11.json", "11.json.html"]
    assert profiled.one["saved"] == saved[-1:]
    assert profiled.one["most"] == 1
    assert profiled.none["files"] == profiled.none["saved"] == []
    assert profiled.zipped["files"] == ["11.json.gz", "11.json.html"]
    # Saved under one name: the last is not what the first's removal takes away.
    assert profiled.same["files"] == ["same.json", "same.json.html"]
    # Nothing that was uploaded is taken back, and all was.
    kept = (profiled.all, profiled.one, profiled.none, profiled.zipped, profiled.same)
    assert {each["uploads"] for each in kept} == {8}
    with gzip.open(next(profiled.folder.glob("keep1*/r/11.json.gz"))) as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.cuda
def test_every_epoch_is_profiled_alike(profiled):
    epoch = ["NONE", "WARMUP", "RECORD_AND_SAVE", "WARMUP", "RECORD_AND_SAVE", "NONE"]
    assert profiled.all["states"] == epoch + epoch


@pytest.mark.cuda
def test_stacks_need_no_warm_up(profiled):
    ending = "pt.trace.json"
    assert profiled.deep == [
        [f"rank0.{batch}.{ending}" for batch in (1, 2, 3)],
        [f"rank0.{batch}.{ending}" for batch in (2, 3)],
    ]
    for path in profiled.folder.glob("deep*/*.json"):
        assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.cuda
def test_a_window_is_saved_when_the_trainer_closes_in_it(profiled):
    # Batch 1 waits, 2 warms up, 3 and 4 are recorded, and so on.
    names = {n: found["files"] for n, found in profiled.closed.items()}
    assert names == {
        "0": [],
        "1": [],
        "3": ["rank0.3.pt.trace.json"],
        "4": ["rank0.4.pt.trace.json"],
        "5": ["rank0.4.pt.trace.json"],
    }
    # By CPU time and memory, by the GPU's.
    tables = {n: len(found["tables"]) for n, found in profiled.closed.items()}
    assert tables == {"0": 0, "1": 0, "3": 4, "4": 4, "5": 0}


UNITS = {"us": 1, "ms": 1e3, "s": 1e6, "b": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20}


def column(table, name):
    """The figures of a column of a table of torch's, as they stand below each other."""
    rule, heads, _, *rows = table.splitlines()
    # Columns are as wide as the rule's dashes.
    ends = list(itertools.accumulate(len(dashes) + 2 for dashes in rule.split()))
    spans = list(zip([0, *ends], ends, strict=False))
    (span,) = [slice(*span) for span in spans if heads[slice(*span)].strip() == name]
    cells = [row[span].strip() for row in itertools.takewhile(lambda r: r[0] != "-", rows)]
    assert 0 < len(cells) <= 20
    found = [re.fullmatch(r"(-?[\d.]+) ?(\w+)", cell).groups() for cell in cells]
    return [float(number) * UNITS[unit] for number, unit in found]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("number", "name"), [(0, "CPU total"), (1, "Self CPU Mem"), (3, "Self CUDA Mem")]
)
def test_tables_of_the_last_window_are_sorted(profiled, number, name):
    figures = column(profiled.closed["4"]["tables"][number], name)
    assert figures == sorted(figures, reverse=True)
    assert name == "Self CPU Mem" or figures[0] > figures[-1]


@pytest.mark.cuda
def test_a_window_that_an_epoch_cuts_short_is_saved(profiled):
    assert profiled.unknown == [
        ["rank0.3.pt.trace.json"],
        ["WARMUP", "RECORD", "RECORD", "NONE"],
    ]


@pytest.mark.cuda
def test_a_model_on_the_cpu_is_profiled_too(profiled):
    assert profiled.cpu == ["2.html", "rank0.2.pt.trace.json"]
    page = (profiled.folder / "cpu/2.html").read_text()
    # The parameters were there before memlab came.
    assert "gradient" in page.lower() and "max allocated" in page


@pytest.mark.cuda
def test_profiling_says_nothing(profiled):
    """No warning of memlab's, nor of a call that torch has deprecated."""
    assert "memlab: " not in profiled.err
    assert "eprecat" not in profiled.err


# ---- What goes wrong in a run ----

FAILURES = """
import pathlib, shutil

def run(name, break_it=lambda trainer: None, schedule=None, refuses=None, **options):
    torch_profiler = TorchProfiler(
        folder=name, filename="{batch}.json", memory_filename="{batch}.html", **options)
    profiler = Profiler(schedule or cyclic_schedule(active=1, repeat=0), **NOTHING)
    trainer = Trainer(torch_profiler, profiler=profiler, batches=5)
    trainer.logger.refuses = refuses
    def at_batch_end(trainer):
        if trainer.state.timestamp.batch == 2:
            break_it(trainer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.fit(at_batch_end).close()
    said = [str(w.message) for w in said if str(w.message).startswith("memlab: ")]
    return dict(files=files(name), saved=len(torch_profiler.saved_traces), said=said)

def no_folder(trainer):
    shutil.rmtree("away")
    pathlib.Path("away").write_text("in the way")

def schedule(state):
    if state.timestamp.batch == 3:
        raise KeyError("of the program")
    return ProfilerAction.ACTIVE_AND_SAVE

tell(away=run("away", no_folder),
     schedule=run("schedule", schedule=schedule),
     exists=run("exists", refuses=FileExistsError("is there"), num_traces_to_keep=0),
     refused=run("refused", refuses=OSError("no network"), num_traces_to_keep=1))

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
    tell(other=run("other"))
tell(theirs=len(theirs.events()))

# What warnings become errors in.
warnings.simplefilter("error")
trainer = Trainer(OOMObserver(folder="errors"))
trainer.logger.refuses = OSError("no network")
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    tell(errors=len(files("errors")))
trainer.close()
"""


@pytest.fixture(scope="module")
def failed(program):
    return program(FAILURES)


@pytest.mark.cuda
def test_the_training_goes_on_where_files_cannot_be_written(failed):
    away = failed.away
    assert (away["files"], away["saved"]) == ([], 1)
    trace, page = away["said"]
    assert "a trace was not written" in trace and "away" in trace
    assert "a memory timeline was not written" in page


@pytest.mark.cuda
def test_the_training_goes_on_where_the_schedule_fails(failed):
    assert failed.schedule["files"] == ["1.html", "1.json", "2.html", "2.json"]
    (said,) = failed.schedule["said"]
    assert "KeyError: 'of the program'" in said and "off for the rest" in said


@pytest.mark.cuda
def test_what_was_not_uploaded_is_not_removed(failed):
    for run, remedy, saved in ((failed.exists, "overwrite=True", 0),
                               (failed.refused, "no network", 1)):  # fmt: skip
        assert run["files"] == ["2.html", "2.json", "4.html", "4.json"]
        assert run["saved"] == saved
        (said,) = run["said"]
        assert remedy in said


@pytest.mark.cuda
def test_another_torch_profiler_keeps_its_trace(failed):
    assert failed.other["files"] == []
    assert "another torch profiler" in failed.other["said"][0]
    assert failed.theirs > 100


@pytest.mark.cuda
def test_warnings_that_are_errors_do_not_reach_the_training(failed):
    assert failed.errors == 5


# ---- Out of memory ----

OOM = """
def fail(size=1 << 42):
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        return str(error)

torch.cuda.memory._record_memory_history()
torch.ones(1, device="cuda")
before = fail()
def theirs():
    return len(torch.cuda.memory._snapshot()["device_traces"][0])
history = theirs()

observer = OOMObserver(filename="deep/rank{rank}.{batch}_oom")
snapshot = MemorySnapshot(folder="window", interval="2ba", remote_file_name=None)
trainer = Trainer(observer, snapshot, batches=5).fit()
begun = files("r")
after = fail()
first = trainer.logger.uploads[:]
marks = {name: os.stat(f"r/torch_traces/deep/{name}").st_mtime_ns
         for name in files("r/torch_traces/deep")}
x = torch.ones(1024, device="cuda")
fail(), fail()
same = all(os.stat(f"r/torch_traces/deep/{name}").st_mtime_ns == m
           for name, m in marks.items())
last = trainer.logger.uploads[5:]
trainer.close()
closed = fail()
tell(before=before, after=after, begun=begun, first=first, same=same, last=last,
     uploads=len(trainer.logger.uploads), files=files("r"), window=files("window"),
     theirs=theirs() - history, closed=closed)

# Another run, in a folder for uploads, which may replace what is there.
trainer = Trainer(OOMObserver(remote_file_name="s3://bucket@space/ooms/{run_name}",
                              overwrite=True, folder="{run_name}/torch_traces"))
trainer.logger.destinations = [types.SimpleNamespace(
    remote_backend_name="s3", remote_bucket_name="bucket")]
fail()
tell(again=trainer.logger.uploads)
trainer.close()
none = Trainer(OOMObserver(remote_file_name=None, folder="none"))
fail()
none.close()
tell(none=[files("none"), none.logger.uploads])

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    cpu = Trainer(OOMObserver(folder="cpu"), MemoryMonitor(), device="cpu", batches=1)
    cpu.fit().close()
fail()
tell(cpu=[[str(w.message) for w in said if w.category is UserWarning],
          os.path.exists("cpu"), cpu.logger.metrics])
bare = Trainer(OOMObserver(folder="bare"), MemoryMonitor(), batches=0,
               model=torch.nn.ReLU())
fail()
bare.close()
tell(bare=len(files("bare")))
"""

OOM_FILES = [
    "_memory_flamegraph.svg",
    "_segment_flamegraph.svg",
    "_segment_plot.html",
    "_snapshot.pickle",
    "_trace_plot.html",
]


@pytest.fixture(scope="module")
def failing(program):
    return program(OOM)


@pytest.mark.cuda
def test_five_files_at_an_out_of_memory(failing):
    prefix = "torch_traces/deep/rank0.5_oom"
    assert failing.begun == []
    assert sorted(remote for remote, _, _, _ in failing.first) == [
        f"r/oom_traces/rank0_oom{ending}" for ending in OOM_FILES
    ]
    for remote, path, overwrite, size in failing.first:
        ending = remote.removeprefix("r/oom_traces/rank0_oom")
        assert path == str(failing.folder / "r" / f"{prefix}{ending}")
        assert not overwrite and size > 1000
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    folder = failing.folder / "r" / "torch_traces" / "deep"
    with open(folder / "rank0.5_oom_snapshot.pickle", "rb") as file:
        snapshot = pickle.load(file)
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert actions.count("oom") == 1 and "alloc" in actions
    for ending in OOM_FILES:
        if not ending.endswith("pickle"):
            text = (folder / f"rank0.5_oom{ending}").read_text()
            assert text.startswith("<") and "http://" not in text.replace(
                "http://www.w3.org/", ""
            )


@pytest.mark.cuda
def test_torchs_error_and_history_are_as_without_us(failing):
    def words(text):
        return re.sub(r"[\d.]+ (bytes|[KMG]iB)", "_", text)

    assert words(failing.before) == words(failing.after) == words(failing.closed)
    # All four failures, and what came between, are in torch's own history.
    assert failing.theirs > 4


@pytest.mark.cuda
def test_the_first_and_the_last_out_of_memory_stay(failing):
    assert failing.same
    names = [f"torch_traces/deep/rank0.5_oom{last}{ending}"
             for last in ("", "_last") for ending in OOM_FILES]  # fmt: skip
    assert failing.files == sorted(names)
    # The second, which is new there, and the third in its place.
    assert [remote for remote, _, _, _ in failing.last[:5]] == [
        remote for remote, _, _, _ in failing.last[5:]
    ]
    assert failing.last[0][0].startswith("r/oom_traces/rank0_oom_last_")
    assert [overwrite for _, _, overwrite, _ in failing.last] == [False] * 5 + [True] * 5
    # None after the trainer closed.
    assert failing.uploads == 15
    assert "3 times out of memory; the last is in " in failing.err


@pytest.mark.cuda
def test_a_window_beside_it_ends_without_ending_it(failing):
    assert failing.window == [f"rank0.3.memory_snapshot{e}" for e in (".html", ".pickle")]


@pytest.mark.cuda
def test_uploads_of_an_out_of_memory_go_where_they_are_told(failing):
    assert sorted((remote, overwrite) for remote, _, overwrite, _ in failing.again) == [
        (f"ooms/r/rank0_oom{ending}", True) for ending in OOM_FILES
    ]
    files, uploads = failing.none
    assert (len(files), uploads) == (5, [])


@pytest.mark.cuda
def test_a_model_on_the_cpu_is_told_and_left_alone(failing):
    said, folder, metrics = failing.cpu
    assert said == [
        "OOMObserver only works on CUDA devices, but the model is on cpu.",
        "The memory monitor only works on CUDA devices, but the model is on cpu.",
    ]
    assert not folder and metrics == []


@pytest.mark.cuda
def test_a_model_without_parameters_is_no_reason_to_fail(failing):
    assert failing.bare == 5


# ---- Figures of every batch ----

MONITOR = """
class Writer:
    def __init__(self):
        self.told = []
    def add_scalar(self, key, value, step):
        self.told.append([key, value, step])
    def flush(self):
        pass

writer = Writer()
stats = []
trainer = Trainer(MemoryMonitor(tensorboard=writer), MemoryMonitor({
    "reserved_bytes.all.current": "now_bytes", "num_ooms": "ooms", "nothing": "x"}),
    MemoryMonitor({"num_ooms": "n", "allocated_bytes.all.peak": "p"}, 2), batches=3)
# Between the batch and the callbacks nothing is allocated.
trainer.fit(lambda trainer: stats.append(torch.cuda.memory_stats())).close()
tell(stats=stats, metrics=trainer.logger.metrics, told=writer.told)
class Refuses(Logger):
    def log_metrics(self, metrics, step=None):
        raise OSError("no network")
trainer = Trainer(MemoryMonitor(), batches=3)
trainer.logger = Refuses()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    trainer.fit().close()
tell(said=[str(w.message) for w in said])
"""


@pytest.fixture(scope="module")
def monitored(program):
    return program(MONITOR)


COMPOSERS = {
    f"memory/{when}_{what}_mem": f"{field}.all.{when}"
    for when in ("current", "peak")
    for what, field in (
        ("allocated", "allocated_bytes"),
        ("active", "active_bytes"),
        ("inactive", "inactive_split_bytes"),
        ("reserved", "reserved_bytes"),
    )
}


@pytest.mark.cuda
def test_a_batch_logs_composers_figures(monitored):
    every = monitored.metrics[0::3]
    assert len(every) == 3
    for logged, stats in zip(every, monitored.stats, strict=True):
        assert set(logged) == {
            *COMPOSERS, "memory/alloc_retries",
            "memory/fragmentation", "memory/ooms", "memory/unexplained_bytes",
        }  # fmt: skip
        for name, field in COMPOSERS.items():
            # To five significant digits, by printf's own rounding.
            assert logged[name] == float(f"{stats[field] / 1e9:.4e}"), name
        assert logged["memory/alloc_retries"] == stats["num_alloc_retries"] == 0
        reserved = stats["reserved_bytes.all.current"]
        inactive = stats["inactive_split_bytes.all.current"]
        assert logged["memory/fragmentation"] == inactive / reserved
    assert every[2]["memory/peak_allocated_mem"] > 0


def test_gigabytes_have_five_digits():
    shown = {123456789: 0.12346, 0: 0, 1: 1e-9, 999999: 0.001, 150e9: 150.0,
             123454999: 0.12345, 98765432109: 98.765}  # fmt: skip
    assert {count: composer._gigabytes(count) for count in shown} == shown


@pytest.mark.cuda
def test_figures_of_ones_own_choice(monitored):
    stats = monitored.stats[1]
    own, ranks = monitored.metrics[4], monitored.metrics[2::3]
    assert own == {
        "memory/now_gigabytes": float(f"{stats['reserved_bytes.all.current'] / 1e9:.4e}"),
        "memory/ooms": 0,
    }
    # Alone, in batches 0 and 2.
    assert set(ranks[1]) == {"memory/n", "memory/p"}
    for logged in ranks[0::2]:
        assert set(logged) == {
            f"memory/{name}{end}" for name in "np" for end in ("", "_avg", "_min", "_max")
        }
        for end in ("_avg", "_min", "_max"):
            assert logged[f"memory/p{end}"] == logged["memory/p"]


@pytest.mark.cuda
def test_sinks_get_memlabs_figures(monitored):
    told = {(key, step): value for key, value, step in monitored.told}
    for step, stats in enumerate(monitored.stats):
        peak = stats["allocated_bytes.all.peak"]
        assert told["memory/peak_allocated_bytes", step] == peak
    assert {step for _, step in told} == {0, 1, 2}


@pytest.mark.cuda
def test_a_logger_that_fails_is_told_once(monitored):
    (said,) = monitored.said
    assert "figures were not logged: OSError: no network" in said


# ---- Ranks ----

RANKS = """
rank = 0 if os.fork() else 1
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                  LOCAL_WORLD_SIZE="2", NODE_RANK="0")
from torch import distributed
distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet",
                               rank=rank, world_size=2)
torch_profiler = TorchProfiler(folder="{run_name}/{rank}", num_traces_to_keep=1,
                               filename="rank{rank}.{batch}.json")
trainer = Trainer(torch_profiler, MemoryMonitor(dist_aggregate_batch_interval=2),
                  profiler=Profiler(cyclic_schedule(active=1, repeat=2), **NOTHING),
                  batches=5)
more = torch.ones(rank << 20, dtype=torch.uint8, device="cuda")
trainer.fit().close()
found = dict(
    saved=[[t.batch, [os.path.relpath(p) for p in paths]]
           for t, paths in torch_profiler.saved_traces],
    metrics=[m for m in trainer.logger.metrics if "memory/ooms_avg" in m])
# One rank has a file in its way: none goes on.
if rank == 1:
    os.makedirs("refused/1")
    open("refused/1/a.txt", "w").close()
try:
    OOMObserver(folder="refused/{rank}").init(trainer.state, trainer.logger)
except FileExistsError as error:
    found["refused"] = str(error)
if rank == 1:
    with open("found.json", "w") as file:
        json.dump(found, file)
    os._exit(0)
os.wait()
with open("found.json") as file:
    tell(ranks=[found, json.load(file)], files=files("r"))
"""


@pytest.mark.cuda
def test_two_ranks(program):
    told = program(RANKS)
    assert told.files == ["0/rank0.4.json", "1/rank1.4.json"]
    for rank in told.ranks:
        assert rank["saved"] == [[4, ["r/0/rank0.4.json", "r/1/rank1.4.json"]]]
        assert "refused/1/a.txt exists" in rank["refused"]
    name = "memory/current_allocated_mem"
    for figures, others in zip(*(rank["metrics"] for rank in told.ranks), strict=True):
        for end in ("_avg", "_min", "_max"):
            assert figures[name + end] == others[name + end]
        assert {figures[name], others[name]} == {
            figures[name + "_min"], figures[name + "_max"],
        }  # fmt: skip
        # The second rank has a MiB more.
        least, most = figures[name + "_min"], figures[name + "_max"]
        assert most - least == pytest.approx(0.001048576, abs=2e-6)
        assert figures[name + "_avg"] == pytest.approx((least + most) / 2, abs=2e-6)
    # Of batches 0, 2 and 4.
    assert len(told.ranks[0]["metrics"]) == 3
