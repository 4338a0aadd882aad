"""What is told of a window: where its files are, or why there are none; and the names that its
files have beside those of others."""

import logging
import os

import pytest
from cuda_here import has_gpu
from stand_in_trainer import Trainer
from window_files import batches, files, snapshot, warned


def test_nothing_is_written_where_nothing_was_recorded(work):
    trainer = Trainer(snapshot(), work=lambda batch: None)
    (text,) = warned(trainer.fit)
    assert text == (
        "memlab: nothing was recorded: no memory was allocated or freed in 3 batches; no "
        "file is written"
    )
    assert files() == [] and trainer.logger.uploads == []


def test_a_window_that_never_opened_is_told_once(work):
    callback = snapshot(skip_batches=50)
    trainer = Trainer(callback, work=work)
    (text,) = warned(trainer.fit)
    assert "nothing was recorded: the training ended after 10 batches" in text
    assert "skip_batches=50" in text
    # A second training of this trainer is within them too, and so is its end.
    assert warned(trainer.fit) == warned(trainer.close) == []
    # No training, nothing to tell: a trainer that only evaluates.
    assert warned(Trainer(snapshot(), run_name="s").close) == []


LACKING = """
import warnings
import memlab, torch

def train(callback):
    for _ in range(4):
        callback.step()
        torch.ones(1, device="cuda")
    callback.close()

def one_block(callback):
    with callback:
        torch.ones(1, device="cuda")

for use in train, one_block:
    for device in 100, "cuda:100", 0:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            callback = memlab.MemorySnapshot(device=device, interval=2, folder="f")
            use(callback)
        print(*(each.message for each in told))
"""


@pytest.mark.cuda
def test_a_device_that_the_process_lacks_is_told_once(phantom_run):
    lines = phantom_run(LACKING, env={"MEMLAB_PHANTOM_DEVICES": "2"}).stdout.splitlines()
    assert len(lines) == 6 and lines[2] == lines[5] == ""
    for line in (*lines[:2], *lines[3:5]):
        assert line.startswith(
            "memlab: nothing was recorded: device=100 does not exist, and this process has "
        )
        assert line.endswith("; give one of these, or no device to record all")
    if not has_gpu():
        assert "has 2 GPUs, cuda:0 to cuda:1;" in lines[0]


UNASKED = """
import os
import memlab, torch
asked = []
count = torch.cuda.device_count
torch.cuda.device_count = lambda: asked.append(1) or count()
with memlab.MemorySnapshot(device=1):
    pass
assert asked == [] and not torch.cuda.is_initialized()
"""


@pytest.mark.cuda
def test_devices_are_not_counted_before_the_program_uses_them(phantom_run):
    assert "RuntimeWarning" not in phantom_run(UNASKED).stderr


@pytest.mark.parametrize(
    "interval, counted, word",
    [
        ("10tok", {"tokens": 0}, "no tokens"),
        ("10sp", {"samples": 0}, "no samples"),
        ("1iter", {}, "no iteration"),
    ],
)
def test_a_window_in_a_unit_that_nobody_counts(work, capsys, interval, counted, word):
    callback = snapshot(interval=interval)
    trainer = Trainer(callback, work=work, **counted)
    (text,) = warned(trainer.fit)
    assert f"interval='{interval}' did not pass, as the trainer counted {word}" in text
    assert "of 9 batches" in text and "'3ba'" in text
    assert batches("r/torch_traces/rank0.10.memory_snapshot.pickle") == [*range(1, 10)]
    assert capsys.readouterr().err.count("\n") == 1


def test_one_line_says_where_the_files_are_and_what_the_peak_is(work, capsys, caplog):
    callback = snapshot()
    assert callback.files == []
    Trainer(callback, work=work).fit()
    stem = "r/torch_traces/rank0.4.memory_snapshot"
    # The fourth batch makes a block of four times 512 bytes.
    line = f"memlab: peak 2.00 KiB allocated on script:0; wrote {stem}.pickle and .html\n"
    assert capsys.readouterr() == ("", line)
    assert callback.files == [os.path.abspath(stem + e) for e in (".pickle", ".html")]

    # A training that is shorter than the window; a program that looks at its log.
    Trainer(snapshot(interval="99ba"), work=work, run_name="s").fit()
    assert "the training ended before 99ba had passed" in capsys.readouterr().err
    caplog.set_level(logging.INFO, "memlab")
    Trainer(snapshot(), work=work, run_name="t").fit()
    assert capsys.readouterr().err == "" and "wrote t/torch_traces/" in caplog.text


def test_the_line_is_of_the_first_rank(work, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    Trainer(snapshot(), work=work).fit()
    assert len(files()) == 2 and capsys.readouterr().err == ""


def test_its_arguments_can_be_read(work):
    callback = snapshot(2, "5ba", folder="f", filename="{batch}", overwrite=True)
    found = callback.folder, callback.filename, callback.overwrite, callback.skip_batches
    assert found == ("f", "{batch}", True, 2)
    assert (callback.interval.value, callback.interval.unit) == (5, "ba")
    assert callback.remote_file_name.startswith("{run_name}/torch_memory_traces/")


def test_two_callbacks_leave_each_others_files_alone(work):
    """In one folder, and of two folders in one bucket."""
    pair = snapshot(skip_batches=1), snapshot(skip_batches=2, interval=2)
    trainer = Trainer(*pair, snapshot(folder="other"), work=work)
    trainer.fit()
    stem = "r/torch_traces/rank0.4.memory_snapshot"
    assert batches(f"{stem}.pickle") == [1, 2, 3]
    assert batches(f"{stem}_2.pickle") == [2, 3]
    remote = "r/torch_memory_traces/rank0.4.memory_snapshot"
    assert sorted(name for name, _, _ in trainer.logger.uploads) == sorted(
        f"{remote}{beside}{ending}"
        for beside in ("", "_2", "_3")
        for ending in (".pickle", ".html")
    )


def test_uploads_have_the_name_of_the_file(work):
    callback = snapshot(filename="mine_r{rank}_b{batch}")
    trainer = Trainer(callback, work=work)
    trainer.fit()
    assert trainer.logger.uploads[0][0] == "r/torch_memory_traces/mine_r0_b4.pickle"


def test_the_line_stands_above_a_progress_bar(work, capsys):
    tqdm = pytest.importorskip("tqdm").tqdm
    with tqdm(total=10, desc="training", mininterval=0) as bar:
        trainer = Trainer(snapshot(), work=lambda batch: (work(batch), bar.update()))
        trainer.fit()
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    (line,) = [line for line in lines if "memlab: " in line]
    assert line.startswith("memlab: peak ")
