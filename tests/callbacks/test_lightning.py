"""memlab's callbacks in the real Trainers of Lightning, and MemProfiler under FSDP2 on
two ranks."""

import json
import re
from pathlib import Path

import pytest
from cuda_here import has_gpu

from memlab.callbacks._memprofiler.config import MemProfilerCfg

PROGRAMS = Path(__file__).parents[1] / "programs"

pytestmark = pytest.mark.cuda

DOCUMENT = PROGRAMS.parent.parent / "docs" / "TRAINERS.md"


def shown(language):
    """What users are shown in LANGUAGE."""
    section = DOCUMENT.read_text().split("\n## Lightning\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.S)


@pytest.fixture(scope="module")
def outcome():
    return {}


@pytest.fixture
def found(outcome, phantom_run):
    pytest.importorskip("lightning")
    pytest.importorskip("pytorch_lightning")
    if not outcome:
        # Once, also where it fails.
        program = PROGRAMS / "lightning_callbacks.py"
        outcome["done"] = phantom_run(program, *shown("python"), check=False)
    done = outcome["done"]
    if done.returncode:
        pytest.fail(done.stderr, pytrace=False)
    return json.loads(done.stdout.splitlines()[-1])


def test_callbacks_are_those_of_the_lightning_that_is_imported(found):
    one, other = "lightning.pytorch", "pytorch_lightning"
    assert "pip install lightning" in found["without"]
    callback = "callbacks.callback"
    assert found["bases"] == [
        [f"{other}.{callback}"],
        [f"{p}.{callback}" for p in (one, other)],
    ]


def test_windows_of_every_unit(found):
    # Two epochs of 60 samples of 16 tokens, in batches of eight but for the last; all
    # begin after the first batch.  In the names: epoch, batch, batch in epoch, sample,
    # sample in epoch, token, token in epoch, as they were when it ended.
    names = {
        "ba": "ba/ba 0 4 4 32 32 512 512",
        "ep": "ep/ep 1 8 8 60 60 960 960",
        "sp": "sp/sp 0 6 6 48 48 768 768",
        "tok": "tok/tok 0 5 5 40 40 640 640",
        "dur": "dur/dur 1 9 1 68 8 1088 128",
        "all": "all/all 2 16 8 120 60 1920 960",
        "default": "torch_traces/rank0.4.memory_snapshot",
    }
    assert found["windows"] == {
        key: [f"{name}.pickle", f"{name}.html"] for key, name in names.items()
    }
    assert found["failures"] == [0] * 6 and found["peak"]


def test_it_records_once(found):
    assert found["again"] == []


def test_a_run_without_a_logger(found):
    assert found["fast"] == [
        "torch_traces/rank0.3.memory_snapshot.html",
        "torch_traces/rank0.3.memory_snapshot.pickle",
    ]


def test_an_exception_ends_the_recording_and_writes_it(found):
    assert found["exception"] == "of the program"
    pair = [
        f"torch_traces/rank0.2.memory_snapshot.{ending}"
        for ending in ("html", "pickle")
    ]
    assert found["ended"] == pair and found["still"] is False


def test_a_folder_that_has_files(found):
    resumed, on_cpu = found["setups"]
    pattern = r"torch_traces is not empty; \S*rank0\.2\.memory_snapshot\.html exists\."
    assert re.search(pattern, found["exists"]) and re.search(pattern, resumed)
    assert "The resumed training writes its files beside what is there" in resumed
    assert on_cpu.startswith(
        "The memory snapshot only works on CUDA devices, but the model is on cpu."
    )


def test_callbacks_of_another_trainer_say_which_import_is_right(found):
    snapshot, monitor, transformers, composer = found["wrong"]
    place = "write: from memlab.callbacks.lightning import"
    assert ": memlab.MemorySnapshot is not for Lightning; " in snapshot
    assert snapshot.endswith(f"{place} MemorySnapshot")
    assert monitor.endswith(f"{place} MemoryMonitor")
    ours = ": memlab.callbacks.lightning.MemorySnapshot is not for"
    for name, module, said in (
        ("Transformers", "huggingface", transformers),
        ("Composer", "composer", composer),
    ):
        assert f"{ours} {name}; " in said
        assert said.endswith(f"from memlab.callbacks.{module} import MemorySnapshot")


def test_a_folder_without_a_logger(found):
    stem = "own/rank0.4.memory_snapshot"
    assert found["bare"] == [f"{stem}.html", f"{stem}.pickle"]


def test_a_copy_has_the_same_arguments(found):
    assert found["copy"] == [2, "5ba"]


def test_metrics_are_logged_with_those_of_the_program(found):
    # Of sixteen steps every fourth.
    assert found["steps"] == [3, 7, 11, 15]
    assert found["allocated"] == [True] * 4
    assert found["told"] == []


def test_what_a_logger_refuses_is_told_once(found):
    assert found["refused"] == [
        "memlab: no memory metrics are logged: OSError: no room"
    ]


def test_why_nothing_was_logged_is_told(found):
    on_cpu, nowhere = found["silent"]
    assert on_cpu.endswith("MemoryMonitor logged nothing: the model is on cpu")
    assert "MemoryMonitor logged nothing: the Trainer has no logger" in nowhere


def test_another_training_has_the_endpoint_too(found):
    assert found["endpoints"] == []


def test_a_module_profiles_itself(found):
    calls = [
        f"{name}.2.{context}"
        for name in ("training_step", "validation_step")
        for context in ("end", "start")
    ]
    assert found["keys"] == [f"0.{call}" for call in calls]
    # A batch of 8 x 16 floats, and 8 x 32 of which two modules save the same storage.
    # Nothing is saved where nothing is trained.
    assert found["saved"] == [8 * 16 * 4 + 8 * 32 * 4, 0]
    assert found["profiler_files"] == [
        *(f"cuda_alloc_rank_0.{call}.pickle" for call in calls),
        "rank_0_memory_stats.yaml",
    ]
    assert found["recording"] is False
    # In another fit() of the same Trainer no callback takes the place of another.
    assert found["callbacks"] == 0


def test_an_exception_ends_profiling_and_leaves_its_files(found):
    error, files, recording = found["late"]
    assert error == "after the second batch" and recording is False
    assert files == [
        "memprofiler/cuda_alloc_rank_0.training_step.2.end.pickle",
        "memprofiler/cuda_alloc_rank_0.training_step.2.start.pickle",
        "memprofiler/rank_0_memory_stats.yaml",
    ]


@pytest.mark.filterwarnings("ignore:Disabling CUDA")
def test_what_users_are_shown(found):
    left = [name for name in found["shown"] if not name.startswith("checkpoints")]
    assert left == [
        "memprofiler/cuda_alloc_rank_0.training_step.2.end.pickle",
        "memprofiler/cuda_alloc_rank_0.training_step.2.start.pickle",
        "memprofiler/rank_0_memory_stats.yaml",
        "metrics.csv",
        "torch_traces/rank0.4.memory_snapshot.html",
        "torch_traces/rank0.4.memory_snapshot.pickle",
    ]
    yaml = pytest.importorskip("yaml")
    (text,) = shown("yaml")
    cfg = MemProfilerCfg(**yaml.safe_load(text)["memprofiler_cfg"])
    assert cfg.schedule.max_iter == 4
    assert "validation_step" in cfg.collect_funcs.cuda or not cfg.collect_funcs.cuda


def test_the_other_trainer_takes_them_too(found):
    files, keys = found["other"]
    assert files == [
        "memprofiler/rank_0_memory_stats.yaml",
        "torch_traces/rank0.4.memory_snapshot.html",
        "torch_traces/rank0.4.memory_snapshot.pickle",
    ]
    assert keys == ["0.training_step.2.end", "0.training_step.2.start"]


def test_fsdp_on_two_ranks(phantom_run, torch):
    pytest.importorskip("lightning")
    if has_gpu() and torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    # The figures are checked where they are made.
    done = phantom_run(
        PROGRAMS / "fsdp_memprofiler.py", env={"MEMLAB_PHANTOM_DEVICES": "2"}
    )
    assert sorted(done.stdout.split("\n")) == ["", "OK rank 0", "OK rank 1"], (
        done.stdout
    )
