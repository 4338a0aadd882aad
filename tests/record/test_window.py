"""MemorySnapshot as a trainer's callback: when it records, and what it leaves.

On the scripted source, where each batch makes one block of a size of its own, so that a
file says which batches it is of; and, in one program, on a GPU.
"""

import gc
import inspect
import json
import os
import random
import re
import stat
import types
import weakref
from pathlib import Path

import pytest
from modes import NEW
from stand_in_trainer import Event, Time, Trainer
from window_files import batches, files, snapshot, warned

import memlab
from memlab._files import names
from memlab._record import window as _window


def test_signature():
    """Names, order and defaults of Composer's; memlab's own only by name."""
    parameters = inspect.signature(memlab.MemorySnapshot).parameters.values()
    theirs = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    assert list(theirs.items()) == [
        ("skip_batches", 1),
        ("interval", "3ba"),
        ("max_entries", 100000),
        ("folder", "{run_name}/torch_traces"),
        ("filename", "rank{rank}.{batch}.memory_snapshot"),
        (
            "remote_file_name",
            "{run_name}/torch_memory_traces/rank{rank}.{batch}.memory_snapshot",
        ),
        ("overwrite", False),
    ]
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} >= {
        "source", "stacks", "context", "device", "on_oom", "file", "max_file_bytes",
    }  # fmt: skip


def test_defaults_record_once_from_the_second_batch_to_the_fourth(work):
    callback = snapshot()
    recorded = []

    def watched(batch):
        recorded.append(callback.recording)
        work(batch)

    trainer = Trainer(callback, work=watched, epochs=2)
    assert os.path.isdir("r/torch_traces") and files() == []
    trainer.fit()
    trainer.close()
    assert recorded == [1 <= batch <= 3 for batch in range(20)]
    stem = "r/torch_traces/rank0.4.memory_snapshot"
    assert files() == [f"{stem}.html", f"{stem}.pickle"]
    assert batches(f"{stem}.pickle") == [1, 2, 3]
    assert trainer.logger.uploads == [
        (
            f"r/torch_memory_traces/rank0.4.memory_snapshot{ending}",
            os.path.abspath(stem + ending),
            False,
        )
        for ending in (".pickle", ".html")
    ]
    page = Path(f"{stem}.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "rank0.4.memory_snapshot.html" in page
    assert "http://" not in page and "https://" not in page
    assert {stat.S_IMODE(os.stat(name).st_mode) for name in files()} == {NEW}
    # Its answers stay, for who holds it.
    assert callback.data().counts(0)["events"] == 6


def model_window(skip, unit, length, epochs, per_epoch, samples, tokens, seconds, group):
    """By hand: the batches within the window, and how many there were at its end."""
    moments = []  # in order: what is counted after each batch, and after each epoch
    total = epochs * per_epoch

    def counted(batch, ended):
        return {
            "ba": batch,
            "sp": batch * samples,
            "tok": batch * tokens,
            "sec": batch * seconds,
            "ep": ended,
            "iter": ended // group,
            "dur": batch / total,
        }[unit]

    for batch in range(1, total + 1):
        moments.append((batch, counted(batch, (batch - 1) // per_epoch)))
        if batch % per_epoch == 0:
            moments.append((batch, counted(batch, batch // per_epoch)))
    if skip >= total:
        return [], None
    before = counted(skip, skip // per_epoch)
    for batch, count in moments:
        if batch > skip and count - before >= length - 1e-9:
            return list(range(skip, batch)), batch
    return list(range(skip, total)), total


def test_windows_of_every_unit_against_a_model(work):
    rng = random.Random(20261122)
    ended_early = never = 0
    for case in range(100):
        unit = rng.choice(["ba", "sp", "tok", "sec", "ep", "iter", "dur"])
        epochs, per_epoch = rng.randrange(1, 5), rng.randrange(1, 9)
        skip = rng.randrange(0, 12)
        samples, tokens = rng.randrange(1, 40), rng.randrange(1, 200)
        seconds, group = rng.choice([0.5, 1.0, 1.75]), rng.randrange(1, 3)
        length = {
            "ba": lambda: rng.randrange(1, 12),
            "sp": lambda: rng.randrange(1, 300),
            "tok": lambda: rng.randrange(1, 1500),
            "sec": lambda: rng.randrange(1, 15),
            "ep": lambda: rng.randrange(1, 4),
            "iter": lambda: rng.randrange(1, 3),
            "dur": lambda: rng.randrange(1, 11) / 10,
        }[unit]()
        callback = snapshot(skip, Time(length, unit), folder=f"case{case}")
        trainer = Trainer(
            callback,
            work=work,
            epochs=epochs,
            batches=per_epoch,
            samples=samples,
            tokens=tokens,
            seconds=seconds,
            iteration_epochs=group,
        )
        trainer.fit()
        expected, end = model_window(
            skip, unit, length, epochs, per_epoch, samples, tokens, seconds, group
        )
        what = (case, skip, length, unit, epochs, per_epoch)
        assert not callback.recording, what
        if end is None:
            never += 1
            assert files(f"case{case}") == [], what
        else:
            ended_early += end < epochs * per_epoch
            stem = f"rank0.{end}.memory_snapshot"
            assert files(f"case{case}") == [f"{stem}.html", f"{stem}.pickle"], what
            assert batches(f"case{case}/{stem}.pickle") == expected, what
    assert ended_early > 25 and never > 4


@pytest.mark.parametrize(
    "interval, name, expected",
    [
        # By hand: 10 batches of 32 samples, 2 s each; the first is skipped.
        ("100sp", "rank0.5", [1, 2, 3, 4]),
        ("1ep", "rank0.10", list(range(1, 10))),
        ("0.3dur", "rank0.4", [1, 2, 3]),
        ("5sec", "rank0.4", [1, 2, 3]),
        (2, "rank0.3", [1, 2]),
    ],
)
def test_windows_by_hand(work, interval, name, expected):
    trainer = Trainer(snapshot(interval=interval, remote_file_name=None), work=work)
    trainer.fit()
    assert batches(f"r/torch_traces/{name}.memory_snapshot.pickle") == expected
    assert trainer.logger.uploads == []


@pytest.mark.parametrize("end", ["fit_end", "close", "plain close", "exception"])
def test_a_training_that_ends_within_the_window(work, end):
    callback = snapshot()
    trainer = Trainer(callback, work=work, batches=2)
    if end == "fit_end":
        trainer.fit()
    else:

        def fails(batch):
            work(batch)
            if batch == 1:
                raise KeyError("the program's own")

        trainer.work = fails
        with pytest.raises(KeyError, match="the program's own"):
            trainer.fit()
        if end == "exception":
            # Nobody calls close(): the program's end does.
            _window._closer(callback._window)()
        else:
            callback.close(*([] if end == "plain close" else [trainer.state, None]))
    assert not callback.recording
    name = "rank0.2" if end == "fit_end" else "rank0.1"
    assert batches(f"r/torch_traces/{name}.memory_snapshot.pickle") == [1]
    assert len(trainer.logger.uploads) == 2
    callback.close()
    assert len(files()) == 2


def test_a_second_fit_may_begin_the_window_and_a_second_trainer_another(work):
    callback = snapshot(skip_batches=3, interval=1)
    trainer = Trainer(callback, work=work, batches=2)
    trainer.fit()
    assert files() == []
    trainer.fit()
    assert batches("r/torch_traces/rank0.4.memory_snapshot.pickle") == [3]
    Trainer(callback, work=work, batches=4, run_name="s").fit()
    assert batches("s/torch_traces/rank0.4.memory_snapshot.pickle") == [3]


def test_a_trainer_after_one_that_failed_within_the_window(work):
    """Nobody closed the first, whose recording would go on for ever."""

    def fails(batch):
        work(batch)
        assert batch < 2

    callback = snapshot()
    with pytest.raises(AssertionError):
        Trainer(callback, work=fails).fit()
    assert callback.recording
    trainer = Trainer(callback, work=work, run_name="s")
    assert not callback.recording
    assert batches("r/torch_traces/rank0.2.memory_snapshot.pickle") == [1, 2]
    assert warned(trainer.fit) == []
    assert batches("s/torch_traces/rank0.4.memory_snapshot.pickle") == [1, 2, 3]


def test_the_newest_events_are_kept(work):
    def many(batch):
        for _ in range(100):
            work(batch)

    Trainer(snapshot(max_entries=50), work=many).fit()
    trace = memlab.load("r/torch_traces/rank0.4.memory_snapshot.pickle")
    events = trace["device_traces"][0]
    assert len(events) == 50 and events[-1]["action"] == "free_completed"
    assert {event["size"] for event in events} == {4 * 512}


def test_a_folder_with_files_is_refused_at_once(work):
    folder = Path("r/torch_traces/deeper")
    folder.mkdir(parents=True)
    (folder / ".hidden").write_text("")
    Trainer(snapshot())
    (folder / "a.txt").write_text("mine")
    with pytest.raises(FileExistsError) as caught:
        Trainer(snapshot())
    assert str(caught.value).startswith(
        "r/torch_traces is not empty; r/torch_traces/deeper/a.txt exists."
    )
    trainer = Trainer(snapshot(overwrite=True), work=work)
    trainer.fit()
    assert len(files()) == 4 and (folder / "a.txt").read_text() == "mine"
    assert [overwrite for _, _, overwrite in trainer.logger.uploads] == [True, True]


def test_ranks_write_files_of_their_own(work, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    Trainer(snapshot(folder="a{local_rank}"), work=work).fit()
    # A name that is the same on all ranks would be the last one's.
    bare = snapshot(folder="b", filename="bare", remote_file_name="c/bare")
    trainer = Trainer(bare, work=work)
    trainer.fit()
    assert files() == [
        "a1/rank3.4.memory_snapshot.html",
        "a1/rank3.4.memory_snapshot.pickle",
        "b/bare_rank3.html",
        "b/bare_rank3.pickle",
    ]
    assert trainer.logger.uploads[0][0] == "c/bare_rank3.pickle"
    # Nor is a rank's folder here one where it is sent to.
    for folder, filename in (("d{rank}", "bare"), ("e", "{rank}/bare")):
        own = snapshot(folder=folder, filename=filename, remote_file_name="c")
        trainer = Trainer(own, work=work)
        trainer.fit()
        assert trainer.logger.uploads[0][0] == "c/bare_rank3.pickle"


@pytest.mark.parametrize(
    "remote, key",
    [
        # The files themselves ...
        ("x/rank{rank}.{batch}", "x/rank0.4.pickle"),
        ("/x/{epoch}", "x/0.pickle"),
        ("s3://b@ns/x/{run_name}-{batch}", "x/r-4.pickle"),
        ("x/sub", "x/sub.pickle"),
        ("x/name", "x/name/sub.pickle"),
        # ... and folders for them.
        ("{run_name}/traces", "r/traces/sub.pickle"),
        ("traces/{run_name}", "traces/r/sub.pickle"),
        ("s3://b/x/rank{rank}", "x/rank0/sub.pickle"),
        ("gs://b/x/{batch}/", "x/4/sub.pickle"),
        ("s3://b", "sub.pickle"),
    ],
)
def test_remote_names(work, remote, key):
    callback = snapshot(filename="deeper/sub", remote_file_name=remote)
    trainer = Trainer(callback, work=work)
    trainer.fit()
    assert files("r/torch_traces/deeper") == ["sub.html", "sub.pickle"]
    assert trainer.logger.uploads[0][0] == key


def test_a_bucket_that_no_logger_has(work, monkeypatch):
    """Composer makes an uploader for the bucket of its own callbacks only."""
    sent = []
    monkeypatch.setattr(_window.upload, "send", lambda *args: sent.append(args))
    callback = snapshot(remote_file_name="s3://bucket@ns/x/{batch}")
    for bucket, expected in (
        ([], ["s3://bucket@ns/x/4.pickle", "s3://bucket@ns/x/4.html"]),
        (["other", "bucket"], []),
    ):
        trainer = Trainer(callback, work=work, run_name=f"to{len(bucket)}")
        trainer.logger.destinations = [
            types.SimpleNamespace(remote_bucket_name=name) for name in bucket
        ]
        trainer.fit()
        assert [uri for _, uri, _ in sent] == expected
        assert [name for name, _, _ in trainer.logger.uploads] == ["x/4.pickle", "x/4.html"]
        sent.clear()


def test_the_file_of_all_events_is_named_for_the_run_and_rank(work, monkeypatch):
    callback = snapshot(file="{run_name}/rank{rank}.mlab", interval=1)
    Trainer(callback, work=work).fit()
    monkeypatch.setenv("RANK", "2")
    Trainer(callback, work=work, run_name="s").fit()
    Trainer(snapshot(file="all.mlab", folder="all"), work=work).fit()
    assert [name for name in files() if name.endswith("mlab")] == [
        "all_rank2.mlab", "r/rank0.mlab", "s/rank2.mlab",
    ]  # fmt: skip
    assert batches("r/rank0.mlab") == [1] and batches("all_rank2.mlab") == [1, 2, 3]
    # Without a trainer the name is what was given.
    with snapshot(file="plain{rank}.mlab"):
        work(0)
    assert batches("plain{rank}.mlab") == [0]


def test_as_a_context_manager_it_is_no_callback(work):
    with snapshot(interval="1ep") as plain:
        work(0)
        work(1)
    assert plain.data().counts(0)["events"] == 4
    assert os.listdir() == [] and plain.state_dict() == {}
    plain.close()
    # Nothing of the callback keeps it alive.
    gone = weakref.ref(plain)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del plain
        assert gone() is None
    finally:
        if enabled:
            gc.enable()


def test_a_resumed_run_records_anew(work):
    """A checkpoint keeps nothing of it: the memory of another process is another."""
    callback = snapshot(interval=1)
    Trainer(callback, work=work).fit()
    resumed = snapshot(interval=1, overwrite=True)
    trainer = Trainer(resumed, work=work)
    resumed.load_state_dict(json.loads(json.dumps(callback.state_dict())))
    trainer.timestamp.batch = 10
    trainer.fit()
    assert batches("r/torch_traces/rank0.12.memory_snapshot.pickle") == [11]


def test_folders_are_found_again_wherever_the_program_goes(work, tmp_path):
    trainer = Trainer(snapshot(), work=work)
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    trainer.fit()
    assert files(tmp_path / "r/torch_traces") == [
        "rank0.4.memory_snapshot.html",
        "rank0.4.memory_snapshot.pickle",
    ]


def test_other_recordings_go_on(work):
    with snapshot() as other:
        Trainer(snapshot(), work=work).fit()
        work(0)
    # Ten batches, and one after the window.
    events = other.data().to_dict()["device_traces"][0]
    assert sum(event["action"] == "alloc" for event in events) == 11


def test_a_forked_child_leaves_the_window_to_its_parent(work):
    callback = snapshot()
    trainer = Trainer(callback, work=work)

    def forks(batch):
        work(batch)
        if batch == 2:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    trainer.timestamp.batch = 9
                    trainer.run(Event.BATCH_END)
                    callback.close()
                    status = len(files()) + callback._window.failures
                finally:
                    os._exit(status)
            assert os.waitpid(child, 0)[1] == 0

    trainer.work = forks
    trainer.fit()
    assert batches("r/torch_traces/rank0.4.memory_snapshot.pickle") == [1, 2, 3]


def test_a_name_of_nothing_in_a_bucket():
    assert names.remote_key("") == ""


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import os, pickle, torch, memlab
from stand_in_trainer import Event, Trainer

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, inputs):
        return self.layer(inputs)

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def train_batch(batch):
    inputs = torch.ones(batch + 1, 1024, device="cuda")
    model(inputs[:, :64]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

torch.cuda.memory._record_memory_history(stacks="python", max_entries=10_000)
peak = torch.cuda.max_memory_allocated()
callback = memlab.MemorySnapshot()
with memlab.MemorySnapshot(on_oom="oom") as other:
    Trainer(callback, work=train_batch, model=model).fit()
    assert other.recording and not callback.recording
    try:
        torch.empty(1 << 50, device="cuda")
    except torch.OutOfMemoryError:
        pass
assert torch.cuda.max_memory_allocated() >= peak

# What torch's own viewer reads, of three batches; its recorder still runs.
name = "r/torch_traces/rank0.4.memory_snapshot.pickle"
with open(name, "rb") as file:
    snapshot = pickle.load(file)
assert set(snapshot) >= {{"segments", "device_traces"}}
assert torch.cuda._memory_viz.trace_plot(snapshot)
events = snapshot["device_traces"][0]
inputs = [
    event["size"] // 4096 - 1
    for event in events
    if event["action"] == "alloc" and event["size"] >= 4096 and event["frames"]
    and event["frames"][0]["name"] == "train_batch"
]
assert inputs == [1, 2, 3], inputs
torch_events = torch.cuda.memory._snapshot()["device_traces"][0]
assert sum(event["action"] == "alloc" for event in torch_events) > len(inputs)
assert memlab.load("oom/rank0_oom.pickle")["device_traces"][0]
assert callback.peak()["device"] == 0
assert "forward" in callback.summary()

# The next training ends with the program, by an exception that nobody catches.
def fails(batch):
    train_batch(batch)
    if batch == 2:
        raise KeyError("the program's own")

print("all is well")
Trainer(memlab.MemorySnapshot(), work=fails, model=model, run_name="fails").fit()
"""


@pytest.mark.cuda
def test_on_a_gpu_and_at_the_end_of_a_program(phantom_run, tmp_path):
    program = PROGRAM.format(tests=str(Path(__file__).parent))
    done = phantom_run(program, check=False)
    assert done.stdout == "all is well\n", done.stderr
    # Triton 3.9 has more to say at the end of a program that failed.
    said = done.stderr.partition("nanobind: ")[0]
    error, _, line = said.rpartition("KeyError: \"the program's own\"\n")
    assert error and re.fullmatch(
        r"memlab: peak .* allocated on cuda:0; wrote fails/torch_traces/rank0\.2\..*\n", line
    ), done.stderr
    assert files(tmp_path / "fails") == [
        "torch_traces/rank0.2.memory_snapshot.html",
        "torch_traces/rank0.2.memory_snapshot.pickle",
    ]


def test_a_loop_without_a_trainer(work, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/train.py"])
    recorder = snapshot(interval=2)
    for step in range(6):
        recorder.step()
        assert recorder.recording == (step in (1, 2))
        work(step)
    recorder.close()
    stem = "train/torch_traces/rank0.3.memory_snapshot"
    assert files() == [f"{stem}.html", f"{stem}.pickle"]
    assert batches(f"{stem}.pickle") == [1, 2]
    with pytest.raises(FileExistsError, match="train/torch_traces is not empty"):
        snapshot().step()
    with pytest.raises(ValueError, match="interval is in ep, which step"):
        snapshot(interval="1ep").step()
    # The last step is over, too.
    few = snapshot(skip_batches=9, folder="few")
    for step in range(3):
        few.step()
        work(step)
    (text,) = warned(few.close)
    assert "the training ended after 3 batches" in text

    # Seconds of a clock that the test turns; a loop that ends within the window; upload.
    now, sent = [100.0], []
    monkeypatch.setattr("memlab._record.own_loop.time.monotonic", lambda: now[0])
    monkeypatch.setattr(_window.upload, "send", lambda *args: sent.append(args[1:]))
    for name, steps, expected in ("s", 5, [0, 1]), ("t", 1, [0]):
        timed = snapshot(0, "2s", folder=name, filename="f", remote_file_name=f"s3://b/{name}")
        for step in range(steps):
            timed.step()
            work(step)
            now[0] += 1
        timed.close()
        assert batches(f"{name}/f.pickle") == expected
        assert sent.pop(0) == (f"s3://b/{name}/f.pickle", False)
        assert sent.pop(0) == (f"s3://b/{name}/f.html", False)


def section(name):
    text = (Path(__file__).parents[2] / "docs" / "TRAINERS.md").read_text()
    return text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


@pytest.mark.cuda
def test_the_documented_loop(phantom_run, tmp_path):
    block, _ = re.findall(r"```python\n(.*?)```", section("Your own loop"), re.S)
    done = phantom_run(block)
    assert done.stdout.startswith("Peak on cuda:0")
    assert files(tmp_path / "traces") == [
        "rank0.5.memory_snapshot.html",
        "rank0.5.memory_snapshot.pickle",
    ]
    events = memlab.load(str(tmp_path / "traces/rank0.5.memory_snapshot.pickle"))
    inputs = [e for e in events["device_traces"][0] if e["size"] == 2048]
    assert sum(event["action"] == "alloc" for event in inputs) >= 3


@pytest.mark.cuda
def test_the_documented_loop_of_accelerate(phantom_run, tmp_path):
    pytest.importorskip("accelerate")
    _, block = re.findall(r"```python\n(.*?)```", section("Your own loop"), re.S)
    done = phantom_run(block)
    assert done.stdout.startswith("Peak on cuda:0")
    assert "optimizer state" in done.stdout and "gradient" in done.stdout
    assert files(tmp_path / "traces") == [
        "rank0.5.memory_snapshot.html",
        "rank0.5.memory_snapshot.pickle",
    ]
