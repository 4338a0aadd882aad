"""memlab.callbacks.torchtitan on the phantom device.

torchtitan itself is no part of these tests: small stand-ins have the classes, signatures,
constants and calls of its tools/profiler.py, tools/profiling.py and components/metrics.py,
at release 0.2.2 and at b5bcd76c of August 2026, and none of its code.
"""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm
from modes import NEW

pytestmark = pytest.mark.cuda

# As of b5bcd76c. Snapshots of the stand-in itself would fail.
TODAY = {
    "tools/profiler.py": """
from dataclasses import dataclass
import torch
from torchtitan.config import Configurable

MEMORY_DIR = "profiling/memory_snapshot"
MEMORY_STEP_DIR = "step_{step:012d}"
MEMORY_EXIT_DIR = "step_{step:012d}_exit"
MEMORY_FILE = "{rank:06d}_step_{step}.pickle"

class Profiler(Configurable):
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        profile_freq: int = 10
        enable_memory_snapshot: bool = False
        memory_snapshot_freq: int | None = None
        save_memory_snapshot_folder: str = MEMORY_DIR
        memory_snapshot_max_entries: int = 1_000_000

    def __init__(self, config, *, global_step=0, base_folder="", leaf_folder=""):
        self._config = config
        self._where = {"global_step": global_step, "base_folder": base_folder,
                       "leaf_folder": leaf_folder}
        self.memory_profiler = None

    def __enter__(self):
        self.memory_profiler = self.build_memory_profiler(**self._where)
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        if self.memory_profiler is not None:
            if isinstance(exc_val, torch.OutOfMemoryError):
                self.memory_profiler.step(exit_ctx=True)
            self.memory_profiler = None
        return False

    def step(self):
        if self.memory_profiler is not None:
            self.memory_profiler.step()

    def build_memory_profiler(self, *, global_step, base_folder, leaf_folder):
        raise AssertionError("the stand-in's own")
""",
    "components/metrics.py": """
from dataclasses import dataclass
import torch
from torchtitan.config import Configurable

class BaseLogger:
    def log(self, metrics, step):
        pass
    def close(self):
        pass

class LoggerContainer(BaseLogger):
    def __init__(self):
        self.rows, self.closed = [], 0
    def log(self, metrics, step):
        self.rows.append({**metrics, "step": step})
    def close(self):
        self.closed += 1

class MetricsProcessor(Configurable):
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        log_freq: int = 10
        enable_tensorboard: bool = False

    def __init__(self, config, *, parallel_dims, dump_folder="./outputs"):
        self.config, self.parallel_dims = config, parallel_dims
        self.logger = LoggerContainer() if config.enable_tensorboard else BaseLogger()

    def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
        metrics = {"loss_metrics/global_avg_loss": global_avg_loss, "grad_norm": grad_norm}
        metrics.update(extra_metrics or {})
        self.logger.log(metrics, step)
        torch.cuda.reset_peak_memory_stats()

    def log_validation(self, loss, step, extra_metrics=None):
        self.logger.log({"validation_metrics/loss": loss}, step)

    def close(self):
        self.logger.close()
""",
    "config.py": """
import dataclasses
from typing import ClassVar

class Configurable:
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config:
        _owner: ClassVar[type | None] = None
        def build(self, **kwargs):
            return self._owner(config=dataclasses.replace(self), **kwargs)

    def __init_subclass__(cls):
        config = cls.__dict__.get("Config")
        if config is not None:
            assert "__slots__" in config.__dict__
            assert all(f.kw_only for f in dataclasses.fields(config))
            config._owner = cls
""",
}

# As of 0.2.2, whose metrics are made by a function.
RELEASE = {
    "tools/profiling.py": "",
    "components/metrics.py": """
class Logger:
    rows = []
    def log(self, metrics, step):
        self.rows.append({**metrics, "step": step})
    def close(self):
        pass

class MetricsProcessor:
    def __init__(self, job_config, parallel_dims, tag=None):
        self.logger, self.made_of = Logger(), [job_config, parallel_dims, tag]

def build_metrics_processor(job_config, parallel_dims, model_args=None, tag=None):
    return MetricsProcessor(job_config, parallel_dims, tag)
""",
}

# Step n takes and gives back (1000 + n) * 4096 bytes.
PRELUDE = """
import json, os, sys, types, urllib.request, warnings
sys.path.insert(0, "titan")
import torch
from memlab.callbacks import torchtitan as titan

said = {}

def out_of_memory():
    torch.empty(1 << 45, device="cuda")

def loop(profiler, first, last, fails=None, how=out_of_memory):
    for step in range(first, last + 1):
        torch.empty((1000 + step) * 4096, dtype=torch.uint8, device="cuda")
        if step == fails:
            how()
        if profiler is not None:
            profiler.step()

def tell(function):
    '''What FUNCTION raises, and is warned of.'''
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function()
            error = None
        except BaseException as e:
            error = f"{type(e).__name__}: {e}"
    return [error, [str(w.message) for w in caught]]
"""

PROGRAM_TODAY = """
def train(folder, first=1, last=7, enable=True, fails=None, how=out_of_memory, **options):
    options = {"enable_memory_snapshot": enable, "memory_snapshot_freq": 3, **options}
    config = titan.Profiler.Config(**options)
    def run():
        with config.build(global_step=first - 1, base_folder=folder) as profiler:
            kept.append(profiler.memory_profiler)
            loop(profiler, first, last, fails, how)
    said[folder] = tell(run)

kept = []
os.environ["CUDA_VISIBLE_DEVICES"] = ""
config = titan.Profiler.Config(enable_memory_snapshot=True)
def nothing():
    with config.build(base_folder="no_gpu") as profiler:
        profiler.step()
said["no_gpu"] = tell(nothing)
del os.environ["CUDA_VISIBLE_DEVICES"]

torch.cuda.memory._record_memory_history(max_entries=1000)
train("steps")
train("resumed", first=5, last=11)
train("off", enable=False)
train("profiled", memory_snapshot_freq=None, profile_freq=5)
train("zero", memory_snapshot_freq=0)
train("few", memory_snapshot_max_entries=4)
train("memory", fails=5)
train("other", fails=5, how=sys.exit)
os.makedirs("denied/snapshots")
for step in (3, 6):
    open(f"denied/snapshots/step_{step:012d}", "w").close()
train("denied", last=9, save_memory_snapshot_folder="snapshots")
said["recording"] = [k._snapshot.recording for k in kept if k is not None]
torch.empty(2000 * 4096, dtype=torch.uint8, device="cuda")
theirs = torch.cuda.memory._snapshot()["device_traces"][0]
said["torch"] = [e["action"] for e in theirs if e["size"] == 2000 * 4096]

# ---- Metrics ----
taken = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
config = titan.MetricsProcessor.Config(log_freq=1, enable_tensorboard=True, prometheus=0)
metrics = config.build(parallel_dims="dims", dump_folder="x")
inner = metrics.logger._logger
metrics.log(1, 0.5, 0.6, 0.7, extra_metrics={"lr": 0.1})
metrics.log_validation(0.4, 2)
url = "http://%s:%d/metrics" % metrics.logger._monitor.address
said["endpoint"] = urllib.request.urlopen(url, timeout=60).read().decode()
real, titan._metrics.metrics = titan._metrics.metrics, lambda *_: 1 / 0
said["failed"] = tell(lambda: [metrics.log(n, 0.5, 0.6, 0.7) for n in (3, 4)])
titan._metrics.metrics = real
metrics.close()
said["rows"], said["closed"] = inner.rows, inner.closed
said["after"] = tell(lambda: urllib.request.urlopen(url, timeout=60))
# A rank that logs nowhere.
metrics = titan.MetricsProcessor.Config().build(parallel_dims="dims")
said["silent"] = tell(lambda: metrics.log(1, 0.5, 0.6, 0.7))
said["allocated"] = torch.cuda.memory_allocated()
print(json.dumps(said))
"""

PROGRAM_RELEASE = """
def train(folder, fails=None, leaf="", **options):
    options = {"enable_memory_snapshot": True, "profile_freq": 3,
               "save_memory_snapshot_folder": "memory_snapshot", **options}
    def run():
        with titan.maybe_enable_memory_snapshot(
            types.SimpleNamespace(**options), global_step=4, base_folder=folder,
            leaf_folder=leaf,
        ) as profiler:
            loop(profiler, 5, 11, fails)
    said[folder] = tell(run)

os.environ["RANK"] = "3"
train("steps", leaf="leaf")
train("memory", fails=8)
train("off", enable_memory_snapshot=False)
train("zero", profile_freq=0)
metrics = titan.build_metrics_processor("job", "dims", "model")
metrics.logger.log({"loss": 1.0}, 5)
said["rows"], said["made_of"] = metrics.logger.rows, metrics.made_of
said["missing"] = tell(lambda: titan.Profiler)
print(json.dumps(said))
"""


def start(environment, folder, stand_in, program):
    for name, source in stand_in.items():
        path = folder / "titan/torchtitan" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source)
    (folder / "titan/torchtitan/__init__.py").touch()
    script = folder / "program.py"
    script.write_text(PRELUDE + program)
    done = warm.run(script, env=environment, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return SimpleNamespace(said=json.loads(done.stdout.splitlines()[-1]), folder=folder)


@pytest.fixture(scope="module")
def today(device_environment, tmp_path_factory):
    """What the program said beside the stand-in for b5bcd76c, and its folder."""
    folder = tmp_path_factory.mktemp("titan")
    return start(device_environment, folder, TODAY, PROGRAM_TODAY)


@pytest.fixture(scope="module")
def release(device_environment, tmp_path_factory):
    """What the program said beside the stand-in for 0.2.2, and its folder."""
    folder = tmp_path_factory.mktemp("titan")
    return start(device_environment, folder, RELEASE, PROGRAM_RELEASE)


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def trace(path):
    return pickle.loads(Path(path).read_bytes())["device_traces"][0]


def steps(path):
    """The numbers of the steps that PATH, a pickle, has."""
    sizes = {e["size"] for e in trace(path) if e["action"] == "alloc"}
    return {size // 4096 - 1000 for size in sizes if 1000 * 4096 < size < 1100 * 4096}


SNAPSHOTS = "profiling/memory_snapshot"


def test_a_snapshot_every_few_steps_where_torchtitan_puts_it(today):
    folder = today.folder / "steps" / SNAPSHOTS
    third = "step_000000000003/000000_step_3.pickle"
    sixth = "step_000000000006/000000_step_6.pickle"
    assert files(today.folder / "steps") == [f"{SNAPSHOTS}/{n}" for n in (third, sixth)]
    assert steps(folder / third) == {1, 2, 3}
    assert steps(folder / sixth) == {1, 2, 3, 4, 5, 6}
    assert {p.stat().st_mode & 0o777 for p in folder.rglob("*.pickle")} == {NEW}
    assert today.said["steps"] == [None, []]


def test_a_resumed_training_counts_on(today):
    assert files(today.folder / "resumed" / SNAPSHOTS) == [
        "step_000000000006/000000_step_6.pickle",
        "step_000000000009/000000_step_9.pickle",
    ]


def test_the_fields_of_the_configuration(today):
    assert today.said["off"] == [None, []]
    assert not (today.folder / "off").exists()
    assert files(today.folder / "profiled" / SNAPSHOTS) == [
        "step_000000000005/000000_step_5.pickle"
    ]
    error, _ = today.said["zero"]
    assert error.startswith("ValueError: ") and "memory_snapshot_freq" in error
    # Each step allocates and frees: of step 5 both, and of step 6.
    kept = trace(today.folder / "few" / SNAPSHOTS / "step_000000000006/000000_step_6.pickle")
    assert len(kept) == 4


def test_an_out_of_memory_is_written_and_passes_on(today):
    error, warned = today.said["memory"]
    assert error.startswith("OutOfMemoryError: ") and warned == []
    folder = today.folder / "memory" / SNAPSHOTS
    stem = "step_000000000004_exit/000000_step_4"
    assert files(folder) == [
        "step_000000000003/000000_step_3.pickle",
        f"{stem}.pickle",
        f"{stem}.txt",
    ]
    assert steps(folder / f"{stem}.pickle") == {1, 2, 3, 4, 5}
    assert "oom" in [e["action"] for e in trace(folder / f"{stem}.pickle")]
    account = (folder / f"{stem}.txt").read_text()
    assert account.startswith("CUDA out of memory on cuda:0 in program.py:")


def test_another_exception_passes_on(today):
    assert today.said["other"] == ["SystemExit: ", []]
    assert files(today.folder / "other" / SNAPSHOTS) == [
        "step_000000000003/000000_step_3.pickle"
    ]


def test_what_cannot_be_written_is_told_once_and_training_goes_on(today):
    error, [warning] = today.said["denied"]
    assert error is None
    assert warning.startswith("memlab: the memory snapshot could not be written to ")
    assert "step_000000000009/000000_step_9.pickle" in files(
        today.folder / "denied/snapshots"
    )


def test_recording_ends_and_others_go_on(today):
    assert today.said["recording"] == [False] * 7
    assert today.said["torch"] == ["alloc", "free_requested", "free_completed"]


def test_without_a_gpu_it_says_so(today):
    error, [warning] = today.said["no_gpu"]
    assert error is None and "need a CUDA device" in warning
    assert not (today.folder / "no_gpu").exists()


def test_metrics_are_in_every_row(today):
    first, second, *others = today.said["rows"]
    assert first["grad_norm"] == 0.7 and first["lr"] == 0.1 and first["step"] == 1
    assert second["validation_metrics/loss"] == 0.4 and second["step"] == 2
    for row in (first, second):
        assert row["memory/allocated_bytes"] == today.said["allocated"] == 1 << 20
        assert row["memory/reserved_bytes"] >= 1 << 20
    assert "memory_allocated_bytes" in today.said["endpoint"]
    assert today.said["closed"] == 1
    assert today.said["after"][0].startswith("URLError: ")


def test_rows_are_logged_where_metrics_fail(today):
    error, [warning] = today.said["failed"]
    assert error is None and "no longer monitored: division by zero" in warning
    assert [row["step"] for row in today.said["rows"]] == [1, 2, 3, 4]
    assert today.said["silent"] == [None, []]


def test_release_snapshots(release):
    """Steps 5 to 11 after a checkpoint, as rank 3."""
    assert files(release.folder / "steps") == [
        f"memory_snapshot/iteration_{n}/leaf/rank3_memory_snapshot.pickle" for n in (6, 9)
    ]
    folder = release.folder / "memory/memory_snapshot"
    assert files(folder) == [
        "iteration_6/rank3_memory_snapshot.pickle",
        "iteration_7_exit/rank3_memory_snapshot.pickle",
        "iteration_7_exit/rank3_memory_snapshot.txt",
    ]
    assert steps(folder / "iteration_7_exit/rank3_memory_snapshot.pickle") == {5, 6, 7, 8}
    assert release.said["memory"][0].startswith("OutOfMemoryError: ")
    assert release.said["off"] == [None, []] and not (release.folder / "off").exists()
    assert release.said["zero"][0].startswith("ValueError: ")


def test_release_metrics(release):
    [row] = release.said["rows"]
    assert row["loss"] == 1.0 and row["step"] == 5
    assert row["memory/allocated_bytes"] == 0
    assert release.said["made_of"] == ["job", "dims", None]


def test_release_has_no_components(release):
    error, _ = release.said["missing"]
    assert error.startswith("AttributeError: ") and "maybe_enable_memory_snapshot" in error
