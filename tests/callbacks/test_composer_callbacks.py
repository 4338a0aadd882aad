"""memlab.callbacks.composer under a stand-in of Composer's trainer: what is written, logged
and uploaded when, and that the training notices nothing.  test_composer_profiler.py has
torch's profiler, tests/composer/ the real trainer."""

import inspect
import os
import pickle
import re
import stat
import types
import unittest.mock

import pytest
from composer_standin import run
from modes import NEW

from memlab.callbacks import composer
from memlab.callbacks.composer import (
    MemoryMonitor,
    OOMObserver,
    Profiler,
    ProfilerAction,
    TorchProfiler,
    cyclic_schedule,
)


@pytest.fixture(scope="module")
def program(device_environment, tmp_path_factory):
    """program(source) runs it in a folder of its own."""
    return lambda source: run(source, device_environment, tmp_path_factory.mktemp("run"))


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


def test_a_stand_in_of_a_trace_handler_is_taken():
    handler = unittest.mock.MagicMock()
    handler.merged_trace_remote_file_name = "s3://bucket/merged"
    profiler = composer.Profiler(composer.cyclic_schedule(), handler)
    assert profiler.trace_handlers == [handler]
    assert "s3://bucket/merged" in profiler.remote_filenames
    assert handler.merged_trace_remote_file_name == "merged"
    assert not isinstance(handler.remote_file_name, str)


def test_gzip_is_in_the_names():
    plain = TorchProfiler(filename="a.json", remote_file_name="b/a.json", use_gzip=True)
    assert (plain.filename, plain.remote_file_name) == ("a.json.gz", "b/a.json.gz")
    given = TorchProfiler(filename="a.json.gz", remote_file_name=None, use_gzip=True)
    assert (given.filename, given.remote_file_name) == ("a.json.gz", None)

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
    observer = OOMObserver(folder="cpu")
    enabled = [observer._enabled]
    cpu = Trainer(observer, MemoryMonitor(), device="cpu", batches=1)
    cpu.fit().close()
    enabled.append(observer._enabled)
fail()
tell(cpu=[[str(w.message) for w in said if w.category is UserWarning],
          os.path.exists("cpu"), cpu.logger.metrics, enabled])
bare = Trainer(OOMObserver(folder="bare"), MemoryMonitor(), batches=0,
               model=torch.nn.ReLU())
fail()
bare.close()
tell(bare=len(files("bare")))

# A trainer that nobody closed, and the next with the same observer.
observer = OOMObserver()
Trainer(observer, run_name="unclosed")
trainer = Trainer(observer, run_name="next")
fail()
trainer.close()
tell(next=[len(files("unclosed")), len(files("next"))])
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
        f"r/oom_traces/rank0.5_oom{ending}" for ending in OOM_FILES
    ]
    for remote, path, overwrite, size in failing.first:
        ending = remote.removeprefix("r/oom_traces/rank0.5_oom")
        assert path == str(failing.folder / "r" / f"{prefix}{ending}")
        assert not overwrite and size > 1000
        assert stat.S_IMODE(os.stat(path).st_mode) == NEW
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
    assert failing.last[0][0].startswith("r/oom_traces/rank0.5_oom_last_")
    assert [overwrite for _, _, overwrite, _ in failing.last] == [False] * 5 + [True] * 5
    # None after the trainer closed.
    assert failing.uploads == 15
    assert "3 times out of memory; the last is in " in failing.err


@pytest.mark.cuda
def test_a_window_beside_it_ends_without_ending_it(failing):
    assert failing.window == [f"rank0.3.memory_snapshot{e}" for e in (".html", ".pickle")]


@pytest.mark.cuda
def test_an_observer_goes_on_in_the_next_trainer(failing):
    assert failing.next == [0, 5]


@pytest.mark.cuda
def test_uploads_of_an_out_of_memory_go_where_they_are_told(failing):
    assert sorted((remote, overwrite) for remote, _, overwrite, _ in failing.again) == [
        (f"ooms/r/rank0_oom{ending}", True) for ending in OOM_FILES
    ]
    files, uploads = failing.none
    assert (len(files), uploads) == (5, [])


@pytest.mark.cuda
def test_a_model_on_the_cpu_is_told_and_left_alone(failing):
    said, folder, metrics, enabled = failing.cpu
    assert enabled == [True, False]
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
torch_profiler = TorchProfiler(folder="{run_name}", num_traces_to_keep=1,
                               filename="{batch}.json", remote_file_name="up/a.json",
                               memory_filename="memory.html",
                               memory_remote_file_name="up/{rank}.html")
trainer = Trainer(torch_profiler, MemoryMonitor(dist_aggregate_batch_interval=2),
                  profiler=Profiler(cyclic_schedule(active=1, repeat=2), **NOTHING),
                  batches=5)
more = torch.ones(rank << 20, dtype=torch.uint8, device="cuda")
trainer.fit().close()
if rank == 0:
    # On one rank only: nothing waits for the other.
    Trainer(OOMObserver(folder="alone")).close()
observed = Trainer(OOMObserver(folder="oom", filename="a", remote_file_name="b"))
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
observed.close()
found = dict(
    uploads=[name for name, *_ in trainer.logger.uploads[2:] + observed.logger.uploads[:1]],
    saved=[[t.batch, [os.path.relpath(p) for p in paths]]
           for t, paths in torch_profiler.saved_traces],
    metrics=[m for m in trainer.logger.metrics if "memory/ooms_avg" in m])
# One rank has a file in its way, from before the run: none goes on.
if rank == 1:
    os.makedirs("refused/1")
    open("refused/1/a.txt", "w").close()
    os.utime("refused/1/a.txt", (0, 0))
try:
    TorchProfiler(folder="refused/{rank}").init(trainer.state, trainer.logger)
except FileExistsError as error:
    found["refused"] = str(error)
if rank == 1:
    with open("found.json", "w") as file:
        json.dump(found, file)
    os._exit(0)
os.wait()
with open("found.json") as file:
    tell(ranks=[found, json.load(file)], files=files("r"), ooms=files("oom"))
"""


@pytest.mark.cuda
def test_two_ranks(program):
    told = program(RANKS)
    # No name of these has the rank in it.
    assert told.files == ["4.json", "4_rank1.json", "memory.html", "memory_rank1.html"]
    assert told.ooms == sorted(f"a{r}{e}" for r in ("", "_rank1") for e in OOM_FILES)
    for rank, uploads in zip(
        told.ranks,
        # Those of the second window leave the first ones' alone.
        [["up/a_2.json", "up/0_2.html", "b/a_snapshot.pickle"],
         ["up/a_rank1_2.json", "up/1_2.html", "b/a_rank1_snapshot.pickle"]],
        strict=True,
    ):  # fmt: skip
        assert rank["uploads"] == uploads
        assert rank["saved"] == [[4, ["r/4.json", "r/4_rank1.json"]]]
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
