"""memlab beside the real packages of trainers.  `make test-trainers` has them; elsewhere
the tests are skipped.  What each must show is worked out by hand in its program."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import memlab

PROGRAMS = Path(__file__).parent


def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a package that it is in
        return False


def need(*packages):
    missing = [name for name in packages if not found(name)]
    if missing:
        pytest.skip(
            f"not installed: {', '.join(missing)} (make test-trainers has them)"
        )


@pytest.fixture
def two_ranks(device_environment, tmp_path):
    """two_ranks(*words): runs Python with WORDS beside two GPUs, in tmp_path."""

    def run(*words):
        command = [sys.executable, *map(str, words)]
        environment = {**device_environment, "MEMLAB_PHANTOM_DEVICES": "2"}
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def recordings(folder, batch):
    """Whether FOLDER has the files of two ranks whose window ended with BATCH, and no other."""
    return sorted(path.name for path in folder.iterdir()) == sorted(
        f"rank{rank}.{batch}.memory_snapshot.{ending}"
        for rank in (0, 1)
        for ending in ("html", "pickle")
    )


@pytest.mark.cuda
@pytest.mark.parametrize("stage", [1, 2])
def test_ranks_of_deepspeed(two_ranks, tmp_path, stage):
    need("deepspeed")
    program = PROGRAMS / "deepspeed_zero.py"
    two_ranks(
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        program,
        stage,
    )
    assert recordings(tmp_path / f"zero{stage}", 3)


@pytest.mark.cuda
def test_ranks_of_accelerate(two_ranks, tmp_path):
    need("accelerate")
    two_ranks(
        "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2",
        "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no",
        PROGRAMS / "accelerate_ranks.py",
    )  # fmt: skip
    assert recordings(tmp_path / "traces", 5)


@pytest.mark.cuda
def test_workers_of_ray_train(two_ranks, tmp_path):
    need("ray")
    two_ranks(PROGRAMS / "ray_train.py")
    assert recordings(tmp_path / "traces", 5)


@pytest.mark.cuda
def test_a_recipe_of_torchtune(device_environment, tmp_path):
    """By hand: AdamW keeps twice the adapters' 8 KiB."""
    need("torchtune", "recipes", "torchao.dtypes.nf4tensor")
    folder = Path(importlib.util.find_spec("recipes").origin).parent
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "memlab", "run", folder / "lora_finetune_single_device.py",
         "--config", PROGRAMS / "torchtune_lora.yaml"],
        env={**device_environment, "PYTHONPATH": path}, cwd=tmp_path, check=True,
    )  # fmt: skip
    recording = memlab.open(tmp_path / "memlab_out" / "rank0.pickle")
    assert recording.peak()["by_category"]["optimizer_state"] == 2 * 8192


@pytest.mark.cuda
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_flat_buffers_of_deepspeed_have_their_categories(phantom_run, stage):
    need("deepspeed")
    phantom_run(PROGRAMS / "deepspeed_zero.py", stage)


@pytest.mark.cuda
def test_an_adapter_is_trained_by_trl_with_the_callbacks(phantom_run):
    need("trl", "peft", "datasets")
    phantom_run(PROGRAMS / "peft_sft.py")
