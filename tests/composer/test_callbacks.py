"""memlab.callbacks.composer in Composer itself, beside the callbacks whose places it takes."""

import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.cuda

PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
""" + """
import json, os, warnings
import composer.callbacks, composer.profiler
import torch
from composer.loggers import InMemoryLogger
from memlab.callbacks.composer import *
from small_trainer import Model, trainer

class Log(InMemoryLogger):
    def __init__(self):
        super().__init__()
        self.uploads = []
    def can_upload_files(self):
        return True
    def upload_file(self, state, remote_file_name, file_path, *, overwrite):
        assert os.path.getsize(file_path)
        self.uploads.append(remote_file_name)

def files(folder):
    return sorted(os.path.relpath(os.path.join(root, name), folder)
                  for root, _, names in os.walk(folder) for name in names)

def run(folder, *callbacks, epochs=2, **arguments):
    os.mkdir(folder)
    os.chdir(folder)
    log = Log()
    made = trainer(list(callbacks), batches=6, max_duration=f"{epochs}ep", loggers=[log],
                   **arguments)
    try:
        made.fit()
    except BaseException as error:
        log.error = error
    made.close()
    os.chdir("..")
    log.files = files(folder)
    return log

def tell(**what):
    print("TOLD", json.dumps(what, default=str))

SCHEDULE = dict(skip_first=1, active=2, repeat=2)
NOTHING = dict(torch_prof_profile_memory=False, torch_prof_with_flops=False)
QUIET = dict(sys_prof_cpu=False)

# The same profiler, by Composer and by memlab.
def profiler(of, **more):
    handler = composer.profiler.JSONTraceHandler(merged_trace_filename=None)
    return of.Profiler(schedule=of.cyclic_schedule(**SCHEDULE), trace_handlers=[handler],
                       torch_prof_num_traces_to_keep=1, torch_prof_use_gzip=True, **more)

import memlab.callbacks.composer as ours
theirs = run("theirs", profiler=profiler(composer.profiler))
mine = run("mine", profiler=profiler(ours))
tell(theirs=[theirs.files, theirs.uploads], mine=[mine.files, mine.uploads])

def events(folder):
    # Of the loop's own trace: what was told to the handler, without the sampled figures.
    found = {}
    for name in files(folder + "/r/traces"):
        with open(folder + "/r/traces/" + name) as file:
            for event in json.load(file):
                if event["name"].startswith("event/"):
                    key = event["name"] + " " + event["ph"]
                    found[key] = found.get(key, 0) + 1
    return found
tell(events=[events("theirs"), events("mine")])

# One's TorchProfiler under the other's profiler, with the other's schedule.
def timeline():
    return TorchProfiler(memory_filename="rank{rank}.{batch}.html", record_shapes=True,
                         with_stack=True)
under = run("under", timeline(), profiler=composer.profiler.Profiler(
    schedule=composer.profiler.cyclic_schedule(**SCHEDULE), trace_handlers=[],
    **NOTHING, **QUIET))
mixed = run("mixed", timeline(), profiler=composer.profiler.Profiler(
    schedule=cyclic_schedule(**SCHEDULE), trace_handlers=[], **NOTHING, **QUIET))
tell(under=[under.files, under.uploads], mixed=[mixed.files, mixed.uploads])

# Figures side by side.
def figures(log):
    return {name: [[t.batch.value, value] for t, value in rows]
            for name, rows in log.data.items() if name.startswith("memory/")}
class Shared(MemoryMonitor):
    # Under names of their own, to be told from Composer's.
    def after_train_batch(self, state, logger):
        class Told:
            def log_metrics(self, metrics):
                logger.log_metrics({"memory/ours" + n[6:]: v for n, v in metrics.items()})
        super().after_train_batch(state, Told())
monitored = run("monitored", composer.callbacks.MemoryMonitor(), Shared(), epochs=1)
tell(figures=figures(monitored))

# An out of memory ends the training.
class Greedy(Model):
    def forward(self, batch):
        if self.training:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        return super().forward(batch)
greedy = run("greedy", OOMObserver(), MemorySnapshot(), MemoryMonitor(), model=Greedy(),
             epochs=1)
tell(greedy=[greedy.files, greedy.uploads, type(greedy.error).__name__])

# Resumed in the middle of an epoch, with all of them.
checkpoints = os.getcwd() + "/checkpoints"
def everything():
    return [MemorySnapshot(overwrite=True), OOMObserver(overwrite=True), MemoryMonitor(),
            TorchProfiler(overwrite=True)]
def short():
    return Profiler(cyclic_schedule(active=1), **NOTHING)
stopped = run("stopped", *everything(), profiler=short(), save_folder=checkpoints,
              save_interval="1ba")
resumed = run("resumed", *everything(), profiler=short(), epochs=1,
              load_path=checkpoints + "/ep0-ba3-rank0.pt")
tell(resumed=[[name for name in log.files if "pt.trace" in name]
              for log in (stopped, resumed)])
"""


@pytest.fixture(scope="module")
def told(device_environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)], env=device_environment, cwd=folder, text=True,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith("TOLD "):
            found.update(json.loads(line[5:]))
    return types.SimpleNamespace(**found, err=done.stderr, folder=folder)


def traces(names):
    """The numbers of the batches of the traces among NAMES."""
    found = [name.rpartition("/")[2].split(".")[1] for name in names if ".pt.trace.j" in name]
    return sorted(map(int, found))


def test_windows_are_saved_when_the_schedule_says(told):
    """Six batches, of which one is left alone, one warms up, two are recorded, twice."""
    files, uploads = told.mine
    assert traces(uploads) == [4, 6, 10, 12]
    assert traces(files) == [12]
    # Composer's own asks its schedule for a seventh batch, and keeps all.
    files, uploads = told.theirs
    assert {4, 6, 10, 12} < set(traces(uploads)) and traces(files) != [12]


def test_composers_trace_handlers_are_told_what_they_are_by_composer(told):
    def others(found):
        return [name for name in found[0] + found[1] if "pt.trace" not in name]

    assert others(told.mine) == others(told.theirs) != []
    theirs, mine = told.events
    begun = {key for key in theirs if key.endswith("B")}
    assert {key: mine.get(key) for key in begun} == {key: theirs[key] for key in begun}
    # What ended had begun.
    for key, count in mine.items():
        assert key in begun or count <= mine[key[:-1] + "B"], key


def test_torch_profiler_follows_composers_profiler(told):
    for files, uploads in (told.under, told.mixed):
        assert traces(files) == [4, 6, 10, 12]
        pages = [name for name in files if name.endswith(".html")]
        assert pages == [f"r/torch_traces/rank0.{n}.html" for n in (10, 12, 4, 6)]
        assert len(uploads) == 8
    page = (told.folder / "under/r/torch_traces/rank0.12.html").read_text()
    for category in ("parameter", "gradient", "optimizer state", "activation"):
        assert category in page.lower(), category


def test_figures_are_composers(told):
    own = "memory/ours/"
    theirs = {k: v for k, v in told.figures.items() if not k.startswith(own)}
    mine = {"memory/" + k.removeprefix(own): v for k, v in told.figures.items()
            if k.startswith(own)}  # fmt: skip
    assert {name: mine[name] for name in theirs} == theirs
    assert len(theirs) == 9 and all(len(rows) == 6 for rows in theirs.values())
    assert set(mine) - set(theirs) == {
        f"memory/{name}" for name in ("fragmentation", "ooms", "unexplained_bytes")
    }


def test_an_out_of_memory_leaves_five_files(told):
    files, uploads, error = told.greedy
    endings = ["_memory_flamegraph.svg", "_segment_flamegraph.svg", "_segment_plot.html",
               "_snapshot.pickle", "_trace_plot.html"]  # fmt: skip
    assert files == [f"r/torch_traces/rank0_oom{ending}" for ending in endings]
    assert sorted(uploads) == [f"r/oom_traces/rank0_oom{ending}" for ending in endings]
    assert error == "OutOfMemoryError"


def test_a_resumed_run_is_profiled_from_where_it_was(told):
    # From its fourth batch on: that warms up, the fifth is recorded.
    stopped, resumed = told.resumed
    assert (traces(stopped), traces(resumed)) == ([2, 8], [5])


def test_nothing_is_told_but_the_out_of_memory(told):
    said = [line for line in told.err.splitlines() if line.startswith("memlab: ")]
    windows = [line for line in said if line.startswith("memlab: peak ")]
    assert len(windows) == 2 and all("; wrote r" in line for line in windows)
    said = [line for line in said if line not in windows]
    assert said == ["memlab: out of memory; wrote r/torch_traces/rank0_oom_*"]
    assert "RuntimeWarning" not in told.err and "eprecat" not in told.err


def test_the_guides_example_runs(device_environment, tmp_path):
    guide = (ROOT / "docs" / "TRAINERS.md").read_text()
    section = guide.split("### Out of memory, figures, torch's profiler")[1]
    example = tmp_path / "example.py"
    example.write_text(re.search(r"```python\n(.*?)```", section, re.S)[1])
    done = subprocess.run(
        # The trainer divides by a number that went over the GPU.
        [sys.executable, example], env={**device_environment, "MEMLAB_PHANTOM_BACKED": "1"},
        cwd=tmp_path, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memlab: " not in done.stderr, done.stderr
    found = sorted(path.name for path in (tmp_path / "run" / "torch_traces").iterdir())
    assert found == ["rank0.6.html", "rank0.6.pt.trace.json"]
