"""memlab beside the real packages of trainers.  `make test-trainers` has them; elsewhere
the tests are skipped.  What each must show is worked out by hand in its program."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import memlab

PROGRAMS = Path(__file__).parent
GUIDE = PROGRAMS.parents[1] / "docs" / "TRAINERS.md"
# torchao of the version that torchtune needs.
TORCHAO = Path(sys.prefix) / "torchtune"


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


def documented(name, language="python"):
    """What the guide shows in its section NAME."""
    section = GUIDE.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.S)[1]


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
@pytest.mark.parametrize("stage", [1, 2, 3])
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
def test_the_documented_loop_of_deepspeed(two_ranks, tmp_path):
    need("deepspeed")
    program = tmp_path / "train.py"
    program.write_text(documented("DeepSpeed"))
    two_ranks(
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program
    )  # fmt: skip
    assert recordings(tmp_path / "traces", 5)


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
def test_the_documented_workers_of_ray_train(two_ranks, tmp_path):
    """By hand: AdamW keeps twice the 4 bytes of each of 512 x 512 weights."""
    need("ray")
    start = "import ray\nray.init(num_cpus=4, num_gpus=2, include_dashboard=False, "
    start += "object_store_memory=100 << 20)\n"
    program = tmp_path / "train.py"
    program.write_text(start + documented("Ray Train").replace("/shared", str(tmp_path)))
    two_ranks(program)
    assert recordings(tmp_path / "traces", 5)
    for path in (tmp_path / "traces").glob("*.pickle"):
        kinds = memlab.open(path).peak()["by_category"]
        assert kinds["optimizer_state"] == 2 * 4 * 512 * 512


@pytest.mark.cuda
def test_the_documented_recipe_of_torchtune(device_environment, tmp_path):
    """By hand: AdamW keeps twice the adapters' 8 KiB."""
    need("torchtune", "recipes")
    if not TORCHAO.is_dir():
        pytest.skip(f"no torchao of torchtune's in {TORCHAO} (make test-trainers has it)")
    shutil.copy(PROGRAMS / "torchtune_lora.yaml", tmp_path / "my.yaml")
    paths = {
        "PATH": [Path(sys.executable).parent, os.environ["PATH"]],
        "PYTHONPATH": [PROGRAMS, TORCHAO, os.environ.get("PYTHONPATH", "")],
    }
    paths = {name: os.pathsep.join(map(str, places)) for name, places in paths.items()}
    subprocess.run(
        ["bash", "-e", "-c", documented("torchtune", "sh")],
        env={**device_environment, **paths}, cwd=tmp_path, check=True,
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


def test_the_documented_part_of_a_kubernetes_job_is_one():
    """By the schema of the API: each field is there, in its place."""
    need("kubernetes_validate")
    import kubernetes_validate
    import yaml

    section = GUIDE.read_text().partition("\n### Kubernetes\n")[2]
    part = yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.S)[1])
    image = {"name": "train", "image": "train:1", "command": ["torchrun", "train.py"]}
    claim = {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}
    pod = {"containers": [image | part], "volumes": [claim], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "gpt"},
        "spec": {"completions": 2, "parallelism": 2, "template": {"spec": pod}},
    }
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    # What is mounted is a volume, and what a value refers to stands before it.
    assert [item["name"] for item in part["volumeMounts"]] == [claim["name"]]
    names = [variable["name"] for variable in part["env"]]
    assert names.index("JOB_NAME") < names.index("MEMLAB")
