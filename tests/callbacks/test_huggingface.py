"""memlab.callbacks.huggingface in the real Trainer of transformers, on the phantom device.

Importing transformers costs seconds: one program trains some dozen times, and the tests
look at what it says and left.
"""

import importlib.util
import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm
from modes import NEW

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None,
        reason="transformers is not installed",
    ),
]

# Ten samples, two a batch, two batches a step: an epoch has three steps, of 2, 2 and 1
# batches.  The forward pass of batch n of a Net, from 1, takes and gives back
# (1000 + n) * 4096 bytes.
PROGRAM = """
import copy, inspect, json, os, pickle, urllib.request, warnings
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
import memlab
from memlab._files import upload
from memlab.callbacks.huggingface import MemoryMonitorCallback, MemorySnapshotCallback

class Net(torch.nn.Module):
    main_input_name = "x"
    def __init__(self, fails=lambda net, x: False):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        for parameter in self.parameters():
            torch.nn.init.constant_(parameter, 0.01)
        self.batches, self.fails = 0, fails
    def forward(self, x, labels=None):
        self.batches += 1
        if self.fails(self, x):
            torch.empty(1 << 45, device="cuda")
        torch.empty((1000 + self.batches) * 4096, dtype=torch.uint8, device=x.device)
        y = self.linear(x)
        return {"loss": y.sum(), "logits": y}

DATA = [{"x": torch.full((64,), float(i)), "labels": torch.ones(1)} for i in range(10)]

def trainer(folder, *callbacks, model=None, **options):
    options = {
        "max_steps": 5, "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2, "report_to": [], "disable_tqdm": True,
        "save_strategy": "no", "logging_strategy": "no", **options,
    }
    return Trainer(
        model or Net(), TrainingArguments("out/" + folder, **options),
        train_dataset=DATA, eval_dataset=DATA[:2], callbacks=list(callbacks),
    )

said = {}

def train(name, /, *arguments, resume=None, model=None, options={}, **more):
    '''Trains with a MemorySnapshotCallback; keeps what was raised and warned of.'''
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            callback = MemorySnapshotCallback(*arguments, **more)
            it = trainer(name, callback, model=model, **options)
            it.train(resume_from_checkpoint=resume)
            error = None
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
    said[name] = {"error": error, "warned": [
        str(w.message) for w in caught
        if "memlab" in str(w.message) or w.filename.startswith(os.path.dirname(memlab.__file__))
        or "memory snapshot" in str(w.message)
    ]}
    return it if error is None else None

# Where numbers are real: the phantom counts no tokens.
cpu = {"use_cpu": True, "logging_strategy": "steps", "logging_steps": 1}
counts = {"use_cpu": True, "include_num_input_tokens_seen": "all"}

# ---- The window ----
train("default")
train("named", folder="{run_name}/torch_traces", options={"run_name": "a run"})
train("path", folder="{run_name}/torch_traces", options={"run_name": "out/path"})
train("epoch", 0, "1ep")
train("samples", 0, "10sp")
train("tokens", 0, "300tok", source="cpu", options=counts)
train("uncounted", 0, "300tok")
train("share", 1, "0.4dur")
train("long", 1, "1h")
train("iterations", 0, "1iter")
train("negative", -1)
fields = "_".join("{%s}" % name for name in (
    "epoch", "batch", "batch_in_epoch", "sample", "sample_in_epoch", "token",
    "token_in_epoch", "world_size", "nothing"))
train("fields", 0, 4, filename=fields, source="cpu", options=counts)
train("fields_of_an_epoch", 0, "1ep", filename=fields)
os.environ["RANK"] = "3"
train("ranks", file="out/ranks/rank{rank}.mlab")
del os.environ["RANK"]

# ---- Folders, and a training that is resumed ----
os.makedirs("out/full/torch_traces")
open("out/full/torch_traces/of_the_user", "w").close()
train("full")
train("full_but", overwrite=True, folder="../full/torch_traces")
train("begun", options={"save_strategy": "steps", "save_steps": 2, "max_steps": 4})
it = train("begun", resume=True)
said["begun"]["steps"] = it.state.global_step
it = trainer("stopped", save_strategy="steps", save_steps=2, max_steps=2)
it.train()
train("stopped", 0, 1, filename=fields, resume=True)

# ---- What goes wrong ----
# The forward pass that has a batch of two fails, after the first step.
train("smaller", model=Net(lambda net, x: net.batches > 1 and len(x) > 1),
      options={"auto_find_batch_size": True, "gradient_accumulation_steps": 1})
from memlab.callbacks import huggingface
real, huggingface._Count.progress = huggingface._Count.progress, lambda *_: 1 / 0
it = train("ours")
huggingface._Count.progress = real
said["ours"]["steps"] = it.state.global_step
caught = MemorySnapshotCallback()
try:
    trainer("caught", caught, model=Net(lambda net, x: net.batches > 3)).train()
except torch.OutOfMemoryError:
    caught.close()
said["caught"] = [caught.snapshot.recording, os.listdir("out/caught/torch_traces")]
twice = MemorySnapshotCallback(interval=1)
it = trainer("twice", twice)
it.train()
it.train()

# ---- Callbacks of another trainer ----
said["wrong"] = []
for wrong in memlab.MemorySnapshot(), memlab.MemoryMonitor():
    try:
        trainer("wrong", wrong)
    except AttributeError as error:
        said["wrong"].append(str(error))
try:
    huggingface.MemorySnapshot().state_key
except AttributeError as error:
    said["wrong"].append(str(error))
said["names"] = [
    huggingface.MemorySnapshot is MemorySnapshotCallback,
    huggingface.MemoryMonitor is MemoryMonitorCallback,
]

# ---- Numbers ----
losses = [[row["loss"] for row in train(name, options=cpu, **more).state.log_history[:-1]]
          for name, more in (("no_gpu", {}), ("cpu", {"source": "cpu"}))]
it = trainer("alone", **cpu)
it.train()
losses.append([row["loss"] for row in it.state.log_history[:-1]])
said["losses"] = losses

# ---- Copies, uploads ----
there = os.path.abspath("out/there")
callback = MemorySnapshotCallback(
    0, "2ba", remote_file_name=f"file://{there}/{{run_name}}/rank{{rank}}.{{batch}}")
copies = [callback, pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)]
for name, callback in zip(("sent", "pickled", "copied"), copies):
    trainer(name, callback).train()
upload.flush(60)
said["summary"] = copies[2].snapshot.summary()
said["signature"] = [
    str(inspect.signature(MemorySnapshotCallback)) == str(
        inspect.signature(memlab.MemorySnapshot)
    ).replace("{run_name}/torch_traces", "torch_traces"),
    issubclass(MemorySnapshotCallback, TrainerCallback),
    issubclass(MemoryMonitorCallback, TrainerCallback),
]
monitor = MemoryMonitorCallback(tensorboard="x", prometheus=9400)
said["monitor"] = pickle.loads(pickle.dumps(monitor))._options

# ---- Metrics ----
class Looks(TrainerCallback):
    begun = 0
    def __init__(self):
        self.rows = []
    def on_train_begin(self, args, state, control, **kwargs):
        self.begun += 1
    def on_log(self, args, state, control, logs=None, **kwargs):
        self.rows.append({**logs, "now": torch.cuda.memory_allocated()})

before, after = Looks(), Looks()
class Reads(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if monitor.address and "loss" in logs:
            url = "http://%s:%d/metrics" % monitor.address
            said["endpoint"] = urllib.request.urlopen(url, timeout=60).read().decode()

monitor = MemoryMonitorCallback(tensorboard="out/own", prometheus=0)
it = trainer(
    "metrics", before, monitor, after, Reads(), report_to=["tensorboard"],
    logging_strategy="steps", logging_steps=2, eval_strategy="steps", eval_steps=4,
)
print("---- console ----")
said["result"] = it.train().metrics
print("---- console ----")
said["rows"] = [list(before.rows), list(after.rows), it.state.log_history]
said["calls"] = [before.begun, after.begun]
said["evaluated"] = it.evaluate()
it.train()

print(json.dumps(said))

# ---- An exception in the window, which ends the program too ----
trainer("crashed", MemorySnapshotCallback(), model=Net(lambda net, x: net.batches > 5)).train()
"""


@pytest.fixture(scope="module")
def ran(device_environment, tmp_path_factory):
    """What the program said, its console, and the folder of its output."""
    folder = tmp_path_factory.mktemp("huggingface")
    script = folder / "program.py"
    script.write_text(PROGRAM)
    done = warm.run(script, env=device_environment, cwd=folder, timeout=300)
    said = [line for line in done.stdout.splitlines() if line.startswith('{"default"')]
    assert said and done.returncode == 1, done.stdout + done.stderr
    error, files = done.stderr.splitlines()[-2:]
    assert "OutOfMemoryError" in error and "wrote out/crashed/torch_traces" in files
    console = done.stdout.split("---- console ----\n")[1]
    return SimpleNamespace(said=json.loads(said[0]), console=console, out=folder / "out")


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def pair(name):
    return [f"{name}.html", f"{name}.pickle"]


def batches(path):
    """The numbers of the batches whose forward pass PATH, a pickle, has."""
    snapshot = pickle.loads(Path(path).read_bytes())
    sizes = {e["size"] for e in snapshot["device_traces"][0] if e["action"] == "alloc"}
    return {size // 4096 - 1000 for size in sizes if 1000 * 4096 < size < 1100 * 4096}


def test_the_default_window_is_three_steps_after_the_first(ran):
    traces = ran.out / "default/torch_traces"
    assert files(ran.out / "default") == [
        f"torch_traces/{name}" for name in pair("rank0.4.memory_snapshot")
    ]
    # Step 1 had batches 1 and 2, the third only the fifth, the fourth 6 and 7.
    assert batches(traces / "rank0.4.memory_snapshot.pickle") == {3, 4, 5, 6, 7}
    assert (traces / "rank0.4.memory_snapshot.html").read_text().startswith("<!DOCTYPE")
    modes = {p.stat().st_mode & 0o777 for p in traces.iterdir()}
    assert modes == {NEW}
    assert ran.said["default"] == {"error": None, "warned": []}


@pytest.mark.parametrize(
    ("folder", "run", "step"),
    [
        ("named", "a run/", 4),
        # As older versions name runs that have no name.
        ("path", "path/", 4),
        # Three steps are an epoch, and of four samples each.
        ("epoch", "", 3),
        ("samples", "", 3),
        # 64 numbers a sample: 256 a step.
        ("tokens", "", 2),
        # From 1/5 on.
        ("share", "", 3),
        # Not before the end of the training.
        ("long", "", 5),
    ],
)
def test_intervals_and_names(ran, folder, run, step):
    expected = [f"{run}torch_traces/{n}" for n in pair(f"rank0.{step}.memory_snapshot")]
    assert files(ran.out / folder) == expected
    assert ran.said[folder] == {"error": None, "warned": []}


@pytest.mark.parametrize(
    ("folder", "error"),
    [
        ("uncounted", "ValueError: interval: the Trainer counts tokens only with "),
        ("iterations", "ValueError: interval: a Trainer counts no iterations; "),
        ("negative", "ValueError: skip_batches must be at least 0, not -1"),
        ("full", "FileExistsError: "),
    ],
)
def test_arguments_that_make_no_sense(ran, folder, error):
    assert ran.said[folder]["error"].startswith(error)


def test_fields_of_file_names(ran):
    """Step 4 is the first of the second epoch; its batches are 6 and 7, of 128 tokens."""
    name = "1_4_1_16_4_896_256_1_{nothing}"
    assert files(ran.out / "fields") == [f"torch_traces/{n}" for n in pair(name)]
    # An epoch ends after its last step.
    name = "1_3_0_12_0_0_0_1_{nothing}"
    folder = ran.out / "fields_of_an_epoch"
    assert files(folder) == [f"torch_traces/{n}" for n in pair(name)]


def test_each_rank_has_its_files(ran):
    assert files(ran.out / "ranks") == [
        "rank3.mlab",
        *[f"torch_traces/{n}" for n in pair("rank3.4.memory_snapshot")],
    ]


def test_overwrite_keeps_what_is_there(ran):
    assert files(ran.out / "full") == [
        "torch_traces/of_the_user",
        *[f"torch_traces/{n}" for n in pair("rank0.4.memory_snapshot")],
    ]


def test_a_resumed_training_goes_on_where_there_are_files(ran):
    assert files(ran.out / "begun/torch_traces") == pair("rank0.4.memory_snapshot")
    assert ran.said["begun"]["error"] is None
    assert ran.said["begun"]["steps"] == 5
    beside, nothing = ran.said["begun"]["warned"]
    assert "is not empty; " in beside
    assert "The resumed training writes its files beside what is there" in beside
    # It has one step, and the recording begins after that.
    assert nothing.startswith("memlab: nothing was recorded: the training ended after 1 b")


def test_a_training_that_was_stopped_before_its_window_is_recorded_when_resumed(ran):
    """It goes on with step 3, the last of the first epoch: two were before."""
    name = "0_3_3_12_12_0_0_1_{nothing}"
    assert files(ran.out / "stopped/torch_traces") == pair(name)


def test_the_recording_spans_an_out_of_memory_after_which_less_is_tried(ran):
    """Batch 2, the second step, fails; the next attempt counts its steps anew."""
    assert ran.said["smaller"] == {"error": None, "warned": []}
    folder = ran.out / "smaller/torch_traces"
    assert files(folder) == pair("rank0.4.memory_snapshot")
    path = folder / "rank0.4.memory_snapshot.pickle"
    assert batches(path) == {3, 4, 5, 6}
    trace = pickle.loads(path.read_bytes())["device_traces"][0]
    assert "oom" in [e["action"] for e in trace]


def test_a_failure_of_memlab_ends_the_recording_not_the_training(ran):
    assert ran.said["ours"]["error"] is None
    assert ran.said["ours"]["steps"] == 5
    [warning] = ran.said["ours"]["warned"]
    assert "ZeroDivisionError" in warning and "the training goes on" in warning
    assert files(ran.out / "ours") == []


def test_one_callback_records_once(ran):
    assert files(ran.out / "twice/torch_traces") == pair("rank0.2.memory_snapshot")


def test_without_a_gpu_it_warns_and_does_nothing(ran):
    [warning] = ran.said["no_gpu"]["warned"]
    assert warning.startswith("The memory snapshot only works on CUDA devices, but the ")
    assert not (ran.out / "no_gpu").exists() or files(ran.out / "no_gpu") == []


def test_numbers_are_as_without_it(ran):
    assert files(ran.out / "cpu/torch_traces") == pair("rank0.4.memory_snapshot")
    off, cpu, alone = ran.said["losses"]
    assert len(alone) == 5 and len(set(alone)) == 5
    assert off == cpu == alone


def test_an_exception_leaves_what_was_recorded(ran):
    """Batch 6 fails, in step 4: step 3 ended as the last."""
    folder = ran.out / "crashed/torch_traces"
    assert files(folder) == pair("rank0.3.memory_snapshot")
    assert batches(folder / "rank0.3.memory_snapshot.pickle") == {3, 4, 5}


def test_a_program_that_goes_on_after_an_exception_can_close_the_window(ran):
    """Batch 4 fails, in step 2, which has only begun."""
    recording, there = ran.said["caught"]
    assert not recording
    assert sorted(there) == pair("rank0.1.memory_snapshot")


def test_files_are_sent_to_uris(ran):
    for name in ("sent", "pickled", "copied"):
        assert files(ran.out / name) == [
            f"torch_traces/{n}" for n in pair("rank0.2.memory_snapshot")
        ]
    assert files(ran.out / "there") == sorted(
        f"{name}/{n}" for name in ("sent", "pickled", "copied") for n in pair("rank0.2")
    )
    assert ran.said["summary"].startswith("Peak on cuda:0: ")


def test_callbacks_of_another_trainer_say_which_import_is_right(ran):
    place = "write: from memlab.callbacks.huggingface import"
    snapshot, monitor, lightning = ran.said["wrong"]
    assert ": memlab.callbacks.huggingface.MemorySnapshot is not for Lightning; " in lightning
    assert snapshot.endswith(f"{place} MemorySnapshot")
    assert monitor.endswith(f"{place} MemoryMonitor")
    assert ": memlab.MemorySnapshot is not for Transformers; " in snapshot
    assert ran.said["names"] == [True, True]


def test_it_is_a_callback_with_the_arguments_of_memory_snapshot(ran):
    assert ran.said["signature"] == [True, True, True]


KEYS = {
    "memory/allocated_bytes",
    "memory/peak_allocated_bytes",
    "memory/reserved_bytes",
    "memory/peak_reserved_bytes",
    "memory/fragmentation",
    "memory/alloc_retries",
    "memory/ooms",
}


def test_metrics_are_in_every_row_of_the_training(ran):
    """Steps 2 and 4, for callbacks before and after it and in what the Trainer keeps."""
    for rows in ran.said["rows"]:
        training = [row for row in rows if "loss" in row]
        assert len(training) == 2
        for row in training:
            assert row.keys() >= KEYS
            # What is asked for right after.
            if "now" in row:
                assert row["memory/allocated_bytes"] == row["now"] > 0
        for row in rows:
            if "loss" not in row:
                assert not any(key.startswith("memory/") for key in row)
    # None is left out or called twice where one is moved before the others.
    assert ran.said["calls"] == [1, 1]


def test_what_the_program_gets_back_is_as_it_was(ran):
    for answer in (ran.said["result"], ran.said["evaluated"]):
        assert not any(key.startswith("memory/") for key in answer)


def test_metrics_reach_the_console(ran):
    assert ran.console.count("'memory/allocated_bytes': ") == 2


def test_metrics_reach_tensorboard_and_prometheus(ran):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )

    def scalars(path):
        events = event_accumulator.EventAccumulator(str(path)).Reload()
        return {tag: [e.step for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}

    # A file of each call of train().
    theirs = [scalars(path) for path in (ran.out / "metrics").rglob("events.out.*")]
    theirs = [found for found in theirs if "train/loss" in found]
    ours = [scalars(path) for path in (ran.out / "own").rglob("events.out.*")]
    assert len(theirs) == len(ours) == 2
    for key in KEYS:
        assert [found[f"train/{key}"] for found in theirs] == [[2, 4], [2, 4]]
        assert [found[key] for found in ours] == [[2, 4], [2, 4]]
    assert "memory_allocated_bytes" in ran.said["endpoint"]
    assert ran.said["monitor"] == {"tensorboard": "x", "prometheus": 9400}
