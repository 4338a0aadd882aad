"""What goes wrong around a window: it is told once and the training goes on, or it is refused
before the training."""

import os
import types
import warnings
from pathlib import Path

import pytest
from stand_in_trainer import Trainer
from window_files import files, snapshot, warned

import memlab


def test_an_upload_that_another_file_is_in_the_way_of_names_overwrite(work):
    trainer = Trainer(snapshot(), work=work)
    trainer.logger.error = FileExistsError("s3://user:secret@b/x exists")
    (text,) = warned(trainer.fit)
    assert "was not sent" in text and "overwrite=True" in text and "secret" not in text
    # Each was tried, and each is here.
    assert len(trainer.logger.uploads) == 2 and len(files()) == 2


def broken_logger(trainer):
    trainer.logger.error = RuntimeError("the network is gone")


def no_timestamp(trainer):
    work = trainer.work

    def loses_it(batch):
        work(batch)
        if batch == 2:
            trainer.state.timestamp = None

    trainer.work = loses_it


def folder_is_a_file(trainer):
    os.rmdir("r/torch_traces")
    Path("r/torch_traces").write_text("")


def pickle_is_a_folder(trainer):
    os.mkdir("r/torch_traces/rank0.4.memory_snapshot.pickle")


def already_recording(trainer):
    trainer.callbacks[0].start()


@pytest.mark.parametrize(
    "breaks, words, left",
    [
        (broken_logger, "was not sent", 2),
        (no_timestamp, "was given up", 0),
        (folder_is_a_file, "could not be written: FileExistsError", 0),
        (pickle_is_a_folder, "could not be written: Is a directory; the callback's snapshot.save(", 1),
        (already_recording, "could not begin: Error: recording already", 0),
    ],
)
def test_what_fails_is_told_once_and_the_training_goes_on(work, breaks, words, left):
    trainer = Trainer(snapshot(), work=work)

    def run():
        breaks(trainer)
        trainer.fit()

    texts = warned(run)
    assert len(texts) == 1 and words in texts[0], texts
    assert trainer.timestamp.epoch == 1
    window = trainer.callbacks[0]._window
    assert window.over and window.failures >= 1
    assert len([name for name in files() if os.path.isfile(name)]) == left
    # A recording that the program began itself is its own.
    assert trainer.callbacks[0].recording == (breaks is already_recording)
    trainer.callbacks[0].stop()


def test_warnings_that_are_errors_do_not_end_the_training(work):
    trainer = Trainer(snapshot(), work=work)
    trainer.logger.error = RuntimeError("the network is gone")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit()
    assert trainer.callbacks[0]._window.failures == 2


def model_on(device):
    parameter = types.SimpleNamespace(device=types.SimpleNamespace(type=device))
    return types.SimpleNamespace(parameters=lambda: iter([parameter]))


def test_a_model_on_no_gpu(work):
    callback = memlab.MemorySnapshot()
    with pytest.warns(UserWarning) as caught:
        trainer = Trainer(callback, work=work, model=model_on("cpu"))
    assert str(caught[0].message).startswith(
        "The memory snapshot only works on CUDA devices, but the model is on cpu."
    )
    assert warned(trainer.fit) == [] and not os.path.exists("r")
    for device in "cuda", "meta":
        assert warned(lambda: Trainer(memlab.MemorySnapshot(), model=model_on(device))) == []
    # One that was asked for is recorded, and a model may have no parameters.
    assert warned(lambda: Trainer(snapshot(), work=work, model=model_on("cpu")).fit()) == []
    assert warned(lambda: Trainer(memlab.MemorySnapshot(folder="bare"))) == []
    assert len(files("r")) == 2


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"skip_batches": -1}, ValueError, "skip_batches must be at least 0, not -1"),
        ({"skip_batches": True}, ValueError, "skip_batches must be"),
        ({"skip_batches": 1.0}, ValueError, "skip_batches must be"),
        ({"interval": "3"}, ValueError, "interval"),
        ({"interval": None}, TypeError, "interval must be"),
        ({"max_entries": 0}, ValueError, "max_entries must be"),
        ({"max_file_bytes": -1}, ValueError, "max_file_bytes must be at least 1, not -1"),
        ({"max_file_bytes": "1G"}, ValueError, "max_file_bytes must be"),
        ({"source": "gpu"}, memlab.Error, "unknown source 'gpu'"),
        ({"folder": None}, TypeError, "folder must be a str"),
        ({"folder": "{"}, ValueError, "folder is not a format string"),
        ({"filename": ""}, ValueError, "filename must be"),
        ({"remote_file_name": "}"}, ValueError, "remote_file_name is not a format string"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, words):
    with pytest.raises(error, match=words):
        memlab.MemorySnapshot(**arguments)


def test_names_that_lead_out_of_their_folder_are_refused_before_the_training(work):
    with pytest.raises(ValueError, match="run_name is '../r'"):
        Trainer(snapshot(), run_name="../r")
    with pytest.raises(ValueError, match="is not a file name in 'r/torch_traces'"):
        Trainer(snapshot(filename="../{batch}"))
    with pytest.raises(ValueError, match="file is not a format string"):
        Trainer(snapshot(file="a{.mlab"))
    assert os.listdir() == []
