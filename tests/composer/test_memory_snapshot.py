"""memlab.MemorySnapshot in Composer's own Trainer, on the phantom device."""

import json
import re
import subprocess
import sys
from pathlib import Path

WINDOWS = """
import glob, json, os, warnings
import memlab
from composer.core import Time, TimeUnit
from composer.loggers import LoggerDestination
from small_trainer import FailingModel, trainer

class Store(LoggerDestination):
    def __init__(self):
        self.uploads, self.error = [], None

    def can_upload_files(self):
        return True

    def upload_file(self, state, remote_file_name, file_path, *, overwrite):
        self.uploads.append([remote_file_name, os.path.relpath(file_path), overwrite])
        if self.error:
            raise self.error

def files():
    return sorted(glob.glob("*/**/*.*", recursive=True))

def batches(path):
    # Copies of a batch's two inputs, of 4 x 64 floats.
    events = memlab.load(path)["device_traces"][0]
    return sum(
        event["action"] == "alloc" and bool(event["frames"])
        and event["frames"][0]["name"] == "tensor_to_device"
        and event["size"] == 1024
        for event in events
    ) / 2

answers = {}

def fit(name, *arguments, epochs=1, fails=None, **options):
    store = Store()
    callback = memlab.MemorySnapshot(*arguments, **options)
    model = FailingModel(fails) if fails else None
    run = trainer(
        callback, run_name=name, max_duration=f"{epochs}ep", loggers=[store], model=model
    )
    try:
        run.fit()
    except KeyError as error:
        answers[f"{name} raised"] = str(error)
    run.close()
    assert not callback.recording
    found = [path for path in files() if path.startswith(f"{name}/")]
    answers[name] = found, [batches(path) for path in found if path.endswith("pickle")]
    answers[f"{name} uploads"] = store.uploads
    return callback

first = fit("defaults", epochs=2)
assert "layer" in first.summary() and first.peak()["step"] in (0, 1, 2)
fit("samples", interval="17sp")
fit("epoch", interval=Time(1, TimeUnit.EPOCH), epochs=2, remote_file_name=None)
fit("share", interval="0.2dur", epochs=2)
fit("seconds", interval="1h")
fit("early", 8, remote_file_name="s3://bucket/traces/{run_name}")
fit("fails", fails=2)
fit("file", file="{run_name}/events{rank}.mlab", interval=1)
answers["events"] = os.path.exists("file/events0.mlab")

# Refused before the training, unless that goes on from a checkpoint; Composer then has no
# trainer.
try:
    trainer(memlab.MemorySnapshot(), run_name="defaults")
except FileExistsError as error:
    answers["refused"] = str(error)

# What a store refuses is told, and the training ends as ever.
store = Store()
store.error = FileExistsError("there")
again = trainer(
    memlab.MemorySnapshot(overwrite=True), run_name="again", loggers=[store]
)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    again.fit()
answers["told"] = [str(w.message) for w in caught if "memlab" in str(w.message)]
again.close()

# A checkpoint is loaded with and without the callback that it was saved with.
saver = trainer(
    memlab.MemorySnapshot(), run_name="saves", save_folder="kept", max_duration="5ba"
)
saver.fit()
saver.close()
resumed = trainer(
    memlab.MemorySnapshot(interval=1), run_name="resumed",
    load_path="kept/latest-rank0.pt", max_duration="10ba",
)
resumed.fit()
resumed.close()
answers["resumed"] = [path for path in files() if path.startswith("resumed/")]

# A model on the CPU.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    on_cpu = trainer(memlab.MemorySnapshot(), run_name="cpu", device="cpu")
answers["cpu"] = [str(w.message) for w in caught if "memory snapshot" in str(w.message)]
on_cpu.close()
answers["cpu folder"] = os.path.exists("cpu")
print("ANSWERS" + json.dumps(answers))
"""


def test_windows_in_the_real_trainer(composer_run):
    done = composer_run(WINDOWS)
    answers = json.loads(done.stdout.partition("ANSWERS")[2])

    def two(name, batch, count):
        stem = f"{name}/torch_traces/rank0.{batch}.memory_snapshot"
        assert answers[name] == [[f"{stem}.html", f"{stem}.pickle"], [count]]

    two("defaults", 4, 3)
    stem = "rank0.4.memory_snapshot"
    assert answers["defaults uploads"] == [
        [
            f"defaults/torch_memory_traces/{stem}{ending}",
            f"defaults/torch_traces/{stem}{ending}",
            False,
        ]
        for ending in (".pickle", ".html")
    ]
    two("samples", 6, 5)  # 17 samples of 4 a batch, from the second batch on
    two("epoch", 10, 9)
    assert answers["epoch uploads"] == []
    two("share", 5, 4)  # a fifth of twenty batches
    two("seconds", 10, 9)
    two("early", 10, 2)
    assert answers["early uploads"][0][0] == "traces/early/rank0.10.memory_snapshot.pickle"
    two("fails", 2, 2)  # the third batch raised: its input was there
    assert "data are wrong" in answers["fails raised"]
    assert answers["events"]
    assert answers["refused"].startswith("defaults/torch_traces is not empty; ")
    (told,) = answers["told"]
    assert "overwrite=True" in told
    assert answers["resumed"] == [
        f"resumed/torch_traces/rank0.7.memory_snapshot{ending}"
        for ending in (".html", ".pickle")
    ]
    assert answers["cpu"] and "the model is on cpu" in answers["cpu"][0]
    assert not answers["cpu folder"]


UPLOADS = """
import glob, json, os, shutil, warnings
import memlab
from composer.utils import file_helpers
from composer.loggers import remote_uploader_downloader as remote
from composer.utils.object_store.object_store import ObjectStore
from memlab.callbacks.composer import OOMObserver
from small_trainer import trainer

class Folder(ObjectStore):
    # A bucket that is a folder, in threads in place of processes.
    def __init__(self, **options):
        pass
    def get_uri(self, name):
        return f"s3://bucket/{name}"
    def get_object_size(self, name):
        try:
            return os.path.getsize(f"bucket/{name}")
        except OSError:
            raise FileNotFoundError(name) from None
    def upload_object(self, object_name, filename, callback=None):
        os.makedirs(os.path.dirname(f"bucket/{object_name}"), exist_ok=True)
        shutil.copy(filename, f"bucket/{object_name}")

remote.build_remote_backend = lambda name, options: Folder()
remote.validate_credentials = lambda backend, name: None
real = remote.RemoteUploaderDownloader.__init__
remote.RemoteUploaderDownloader.__init__ = lambda self, *args, **options: real(
    self, *args, **{**options, "use_procs": False})

def run(name, *callbacks, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = trainer(list(callbacks), run_name=name, **options)
        made.fit()
        kinds = [type(d).__name__ for d in made.logger.destinations]
        made.close()
    told = [str(w.message) for w in caught if "memlab" in str(w.message)]
    stored = glob.glob("bucket/**/*.*", recursive=True)
    return kinds, sorted(os.path.relpath(p, "bucket") for p in stored), told

uri = "s3://bucket/traces/{run_name}"
snapshot = dict(remote_file_name=uri)
answers = {"first": run("a", memlab.MemorySnapshot(**snapshot), OOMObserver(
    folder="oom", remote_file_name=uri))}
# Another machine, where the folder has no files and the bucket has: the run goes on.
shutil.rmtree("a")
shutil.rmtree("oom")
answers["again"] = run("a", memlab.MemorySnapshot(**snapshot))
# A store that refuses: told, and the run goes on.
def refuses(self, object_name, filename, callback=None):
    raise PermissionError("no")
Folder.upload_object = refuses
answers["refused"] = run("b", memlab.MemorySnapshot(**snapshot))
# No credentials.
def invalid(backend, name):
    raise ValueError("secret")
remote.validate_credentials = invalid
answers["invalid"] = run("c", memlab.MemorySnapshot(**snapshot))

# The same run from its checkpoint: beside what is there.
first = trainer([memlab.MemorySnapshot()], run_name="d", save_folder="{run_name}/kept",
                max_duration="6ba")
first.fit()
first.close()
arguments = {
    "load": dict(load_path="d/kept/latest-rank0.pt"),
    "autoresume": dict(autoresume=True, save_folder="{run_name}/kept",
                       save_latest_filename="latest-rank{rank}.pt"),
}
for name, more in arguments.items():
    answers[name] = run("d", memlab.MemorySnapshot(interval=1), OOMObserver(), 
                        max_duration="10ba", **more)[2]
answers["files"] = sorted(os.listdir("d/torch_traces"))
try:
    trainer([memlab.MemorySnapshot()], run_name="d")
except FileExistsError as error:
    answers["refuses"] = str(error)
print("ANSWERS" + json.dumps(answers))
"""


def test_composers_uploader_and_a_resumed_run(composer_run):
    done = composer_run(UPLOADS)
    answers = json.loads(done.stdout.partition("ANSWERS")[2])
    stem = "traces/a/rank0.4.memory_snapshot"
    pair = [f"{stem}.html", f"{stem}.pickle"]
    uploader = ["RemoteUploaderDownloader"]
    # One for both callbacks, and no package of memlab's.
    assert answers["first"] == [uploader, pair, []]
    kinds, stored, told = answers["again"]
    beside = [f"{stem}_2.html", f"{stem}_2.pickle"]
    assert kinds == uploader and stored == sorted(pair + beside)
    assert len(told) == 2 and all("is in the bucket already" in text for text in told)
    (text,) = answers["refused"][2]
    assert "Composer's uploader of memlab's files failed: PermissionError" in text
    kinds, _, told = answers["invalid"]
    assert kinds == [] and "cannot be used: ValueError" in told[0]
    assert not any("secret" in text for text in told)

    for name in "load", "autoresume":
        told = answers[name]
        assert told and all("The resumed training writes its files beside" in t for t in told)
    assert [name for name in answers["files"] if name.endswith("pickle")] == [
        "rank0.4.memory_snapshot.pickle",
        "rank0.8.memory_snapshot.pickle",
        "rank0.8.memory_snapshot_2.pickle",
    ]
    assert answers["refuses"].startswith("d/torch_traces is not empty; ")


def test_time_strings_are_composers_own():
    """What both accept means the same."""
    from composer.core import Time

    from memlab._files import times

    for text in (
        "3ba", "1ep", "2iter", "100sp", "3e4tok", "4_000tok", "0.25dur", "30sec",
        "3e2ba", "2.0ba", "3BA", "1h20m40s", "1h", "45m", "10s", "1m30s",
    ):  # fmt: skip
        theirs = Time.from_timestring(text)
        assert times.parse(theirs) == times.parse(text), text
        assert times.parse(text) == (theirs.value, theirs.unit.value), text


def test_names_are_composers_own(monkeypatch):
    from composer.core import Timestamp
    from composer.utils import format_name_with_dist_and_time, parse_uri

    from memlab._files import names as _names
    from memlab._record import composer_hooks

    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    state = type("State", (), {"timestamp": Timestamp(epoch=1, batch=12, token=5)})
    progress = composer_hooks.progress(state)
    template = "{run_name}/{rank}-{world_size}/ep{epoch}.ba{batch:04d}.{token}.{x}{}{{}}"
    assert _names.fill(template, progress, run_name="r") == (
        format_name_with_dist_and_time(template, "r", state.timestamp)
    )
    for uri in ("s3://b/a/x", "s3://b@n/a", "gs://b", "dbfs:/Volumes/a", "a/b", "/a/b"):
        assert _names.remote_key(uri) == parse_uri(uri)[2].lstrip("/")


def test_it_is_composers_callback_in_either_order_of_import():
    for order in "composer, memlab", "memlab, composer":
        program = (
            f"import {order}, memlab.callbacks.composer as ours, composer.profiler\n"
            "for kind in (memlab.MemorySnapshot, ours.OOMObserver, ours.MemoryMonitor,\n"
            "             ours.TorchProfiler, ours.Profiler):\n"
            "    assert issubclass(kind, composer.Callback), kind\n"
            "assert isinstance(memlab.MemorySnapshot(), composer.Callback)\n"
            "assert issubclass(ours.Profiler, composer.profiler.Profiler)\n"
            "class Good(memlab.MemorySnapshot, composer.Callback): pass\n"
            "try:\n"
            "    class Bad(composer.Callback, memlab.MemorySnapshot): pass\n"
            "except TypeError as error:\n"
            "    print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True
        )
        assert done.stdout.endswith("write class Bad(MemorySnapshot, Callback)\n"), done.stderr


def test_it_has_the_methods_of_a_callback():
    """An engine and a state take what has these."""
    from composer.core import Event

    import memlab

    theirs = {event.value for event in Event} | {"run_event", "close", "post_close"}
    mine = memlab.MemorySnapshot
    assert {name for name in theirs if hasattr(mine, name)} >= {
        "run_event", "init", "batch_start", "batch_end", "epoch_end", "iteration_end",
        "fit_end", "close", "post_close",
    }  # fmt: skip
    # Nothing of memlab's own is taken for an event.
    own = {"start", "stop", "data", "save", "html", "peak", "lines", "summary"}
    assert not own & theirs


def test_the_documented_callback(composer_run, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "TRAINERS.md").read_text()
    section = text.partition("\n## Composer\n")[2].partition("\n## ")[0]
    block = re.search(r"```python\n(.*?)```", section, re.S)[1]
    program = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from small_trainer import CountsOnCPU, Model, OneRank
import composer
composer.Trainer = lambda **arguments: OneRank(**arguments, device=CountsOnCPU())
model = Model()
samples = torch.zeros(40, 64)
loader = DataLoader(TensorDataset(samples, samples), batch_size=4)
optimizer = torch.optim.Adam(model.parameters())
"""
    assert composer_run(program + block).stdout.startswith("Peak on cuda:0")
    names = sorted(path.name for path in (tmp_path / "r/torch_traces").iterdir())
    assert names == [
        "rank0.4.memory_snapshot.html",
        "rank0.4.memory_snapshot.pickle",
    ]
