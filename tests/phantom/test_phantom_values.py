"""Values on the phantom device: what is small is computed on the host, the rest is made up
and told."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from on_phantom import PROGRAMS, installed, needs_torch, output
from pseudo_terminal import in_a_terminal

PROGRAM = PROGRAMS / "values_read.py"
SOURCE = PROGRAM.read_text().splitlines()


def answer(name, *arguments, **options):
    options.setdefault("forked", not options)
    return json.loads(output(PROGRAM, arguments=[name, *arguments], **options).splitlines()[-1])


def lines(answer):
    """The source lines that read something made up, with how much."""
    return {SOURCE[line - 1].strip(): count for _, line, count in answer["made_up"][1]}


def record(folder, source, **variables):
    """The end of a program of this SOURCE under `memlab run --phantom`."""
    script = folder / "script.py"
    script.write_text(source)
    command = ["-m", "memlab", "run", "--phantom", "--out", str(folder / "out"), str(script)]
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, **variables},
        capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip


@needs_torch
def test_integers_booleans_and_what_follows_from_them_are_a_gpus():
    assert answer("known") == {
        "sum": 28,
        "sorted": [[1, 2, 3, 3], [0, 5, 5, 9]],
        "masked": [3, 3, 5, 5, 9],
        "where": [[0, 0], [0, 2], [1, 1], [1, 2], [1, 3]],
        "unique": [[0, 1, 2, 3, 5, 9], [1, 1, 1, 2, 2, 1]],
        "column": [[1, 8, 1], [0, 7, 0]],
        "max": [[3, 9], [0, 3]],
        "joined": [[3, 1, 3, 2, 2], [0, 5, 5, 9, 9]],
        "repeated": [0] + [1] * 8 + [2],
        "accuracy": 0.25,
        "all": [False, True, True],
        "copied": [[3, 1, 3, 2], [0, 5, 5, 9]],
        "made_up": [0, []],
    }


@needs_torch
def test_random_numbers_are_drawn_and_the_programs_own_left_alone():
    found = answer("random")
    assert found == {
        "in_range": True, "permutation": True, "picked": [1, 2], "host": True,
        "made_up": [0, []],
    }  # fmt: skip


@needs_torch
def test_an_optimizer_steps_as_on_the_host():
    found = answer("trained")
    assert found.pop("made_up") == [0, []]
    assert max(found.values()) < 1e-5, found


@needs_torch
def test_accelerates_own_comparison_of_trainings_passes(tmp_path):
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    # Trains on the host and on the GPU, in several ways and types, and compares.
    program = "accelerate.test_utils.scripts.test_script"
    command = ["-m", "memlab", "run", "--phantom", "--out", str(tmp_path), "-m", program]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Training yielded the same results on one CPU or distributed setup" in done.stdout


@needs_torch
def test_what_is_too_large_reads_as_a_valid_constant_and_is_counted():
    found = answer("made_up")
    assert (found["float"], found["half"]) == (0.5, 0.5)
    assert (found["finite"], found["nan"]) == (True, False)
    assert found["pick"] == [61_803] * 4
    assert found["distinct"]
    assert lines(found) == {
        '"float": large.mean().item(),': 1,
        '"half": large.half().mean().item(),': 1,
        '"finite": torch.isfinite(large).all().item(),': 1,
        '"nan": torch.isnan(large).any().item(),': 1,
        '"pick": logits.argmax(dim=1).tolist(),': 4,
        '"distinct": len(set(best[0].tolist())) == 3 and best.max().item() < 100_000,': 4,
    }
    assert found["made_up"][0] == 12


@needs_torch
def test_a_scaler_skips_no_step():
    found = answer("scaler")
    assert (found["scale"], found["states"], found["loss"]) == (65_536, 2, 0.5)


@needs_torch
def test_distributions_are_checked_and_sampled():
    found = answer("sampling")
    assert found["actions"] == [0, 1]
    assert found["loss"]


@needs_torch
def test_a_mask_of_the_host_selects_its_rows():
    found = answer("masked_accuracy")
    assert found["rows"] == 140
    assert found["accuracy"]


@needs_torch
def test_what_is_not_known_takes_no_room_of_what_is():
    assert answer("gathered") == {"total": 10, "made_up": [0, []]}


@needs_torch
def test_an_evaluation_ends_by_its_own_longest_length():
    found = answer("evaluation")
    assert found["loss"] == 0.5
    assert (found["steps"], found["shape"]) == (20, [2, 21])


@needs_torch
def test_the_sequence_of_allocations_is_the_same_as_without():
    found, plain = answer("sequence"), answer("sequence", "plain")
    assert found.pop("made_up")[0] > 0
    assert found == plain
    assert plain["events"] > 1000


@needs_torch
def test_memory_with_pages_is_left_alone():
    source = """
from memlab._native import bridge
print(bridge.load().watch_values())
"""
    assert output(source, backed=True) == "False"


_GENERATE = """
import torch
import transformers

# The end of a text is token 0.
config = transformers.LlamaConfig(
    num_hidden_layers=1, hidden_size=32, intermediate_size=32, num_attention_heads=2,
    num_key_value_heads=2, vocab_size=500, bos_token_id=0, eos_token_id=0, pad_token_id=0,
)
model = transformers.LlamaForCausalLM(config).cuda().eval()
ids = torch.randint(1, 500, (2, 4)).cuda()
for options in ({}, {"do_sample": True}, {"num_beams": 3}):
    options = {"do_sample": False, "max_new_tokens": 6, **options}
    text = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    print(*text.shape)
raise ValueError("a fault of its own")
"""


@needs_torch
def test_generate_and_beam_search_end_and_a_traceback_says_what_is_real(tmp_path):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    done = record(tmp_path, _GENERATE)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["2 10", "2 10", "2 10"], done.stderr
    after = done.stderr.partition("ValueError: a fault of its own\n")[2]
    said = " ".join(after.split())
    assert said.startswith("memlab: values read back from the phantom device are not real")
    assert "up to there 0 steps of the optimizer, peak " in said
    assert "memlab: the program read " in said


_BROADCAST = """
import sys, tempfile, torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, folder):
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    objects = [{"of": "rank 0"}, [1, 2]] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    numbers = torch.arange(3, device="cuda") * 2 if rank else torch.zeros(
        3, dtype=torch.long, device="cuda")
    dist.broadcast(numbers, 1)
    sys.stdout.write(f"{objects} {numbers.tolist()}\\n")  # in one piece, beside the other's
    dist.destroy_process_group()

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(main, (folder,), 2)
"""


@needs_torch
def test_what_one_rank_broadcasts_arrives(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_PHANTOM_DEVICES", "2")
    done = record(tmp_path, _BROADCAST)
    assert done.returncode == 0, done.stderr
    arrived = "[{'of': 'rank 0'}, [1, 2]] [0, 2, 4]"
    assert [line for line in done.stdout.splitlines() if "of" in line] == [arrived] * 2


@needs_torch
def test_a_program_that_fails_before_it_uses_the_gpu_is_not_blamed_on_values(tmp_path):
    done = record(tmp_path, "import torch\nopen('data.txt')\n")
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr and "not real" not in done.stderr


@needs_torch
def test_a_traceback_names_the_call_that_fails_only_here(tmp_path):
    done = record(tmp_path, "import torch\ntorch.zeros(2, device='cuda').untyped_storage()._share_cuda_()\n")
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "cudaIpcGetMemHandle fails on the phantom device: memory of the device" in said
    assert "memlab: cudaIpcGetMemHandle fails on the phantom device, as said above" in said


_ALONE = """
import torch
large = torch.randn(1 << 20, device="cuda")
print(torch.tensor([True, False, True], device="cuda").sum().item(), large.mean().item())
raise ValueError("a fault of its own")
"""


def started(folder, *words, **variables):
    """The end of _ALONE, started by `memlab phantom`, where memlab is installed."""
    (folder / "script.py").write_text(_ALONE)
    variables = {"PYTHONPATH": installed(folder), **variables}
    done = subprocess.run(
        [sys.executable, "-m", "memlab.phantom", *(words or ("script.py",))],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 1 and "a fault of its own" in done.stderr, done.stderr
    return done.stdout, " ".join(done.stderr.split())


@needs_torch
def test_a_program_that_nothing_records_has_values_and_is_told_what_is_not_real(tmp_path):
    printed, said = started(tmp_path)
    assert printed == "2 0.5\n"
    before, _, after = said.partition("ValueError: a fault of its own ")
    assert "at most small results are computed" in before
    assert after.startswith("memlab: values read back from the phantom device are not real")
    assert "up to there 0 steps of the optimizer, peak 4.00 MiB allocated" in after
    assert "the program read 1 value that was made up" in after and "script.py:4 (1)" in after


@needs_torch
def test_what_is_not_real_is_told_in_lines_of_the_terminal(tmp_path):
    (tmp_path / "script.py").write_text(_ALONE.replace("raise ValueError", "# ValueError"))
    shown = in_a_terminal(
        80, "phantom", tmp_path / "script.py", stream="stderr",
        env={"PYTHONPATH": installed(tmp_path)},
    )  # fmt: skip
    assert "the program read 1 value that was made up" in " ".join(shown.split())
    told = shown[shown.index("memlab: the program read") :].splitlines()
    assert len(told) > 1 and max(map(len, told)) <= 80


@needs_torch
def test_a_program_that_wants_no_values_reads_zeros(tmp_path):
    printed, said = started(tmp_path, MEMLAB_PHANTOM_VALUES="0")
    assert printed == "0 0.0\n"
    assert "results are not computed" in said
    assert said.endswith("ValueError: a fault of its own")


@needs_torch
def test_without_a_bridge_a_program_reads_zeros_and_is_told_why(tmp_path):
    printed, said = started(tmp_path, MEMLAB_TORCH="0")
    assert printed == "0 0.0\n"
    why = "memlab's bridge to torch is switched off by MEMLAB_TORCH=0"
    assert f"memlab: values on the phantom device are not computed: {why}" in said


@needs_torch
@pytest.mark.parametrize("by", ["run", "variable"])
def test_a_program_that_memlab_records_is_told_once(by, tmp_path):
    words = (sys.executable, "-m", "memlab", "run", "--out", "out", "script.py")
    printed, said = (
        started(tmp_path, *words) if by == "run" else started(tmp_path, MEMLAB="--out out")
    )
    assert printed.startswith("2 0.5\n")
    assert said.count("the program read 1 value that was made up") == 1
    assert said.count("values read back from the phantom device are not real") == 1


_STARTS = """
import subprocess, sys
import torch
large = torch.randn(1 << 20, device="cuda")
print(large.mean().item(), flush=True)
subprocess.run([sys.executable, "child.py"], check=True)
"""
_CHILD = """
import torch
large = torch.randn(1 << 20, device="cuda")
print(torch.tensor([True, False, True], device="cuda").sum().item(), large.mean().item())
"""


@needs_torch
def test_a_python_that_a_recorded_program_starts_has_values_and_tells_by_itself(tmp_path):
    (tmp_path / "child.py").write_text(_CHILD)
    done = record(tmp_path, _STARTS, PYTHONPATH=installed(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0.5\n2 0.5\n"), done.stdout
    said = " ".join(f"{done.stderr} {done.stdout}".split())
    assert said.count("script.py:5 (1)") == said.count("child.py:4 (1)") == 1


@needs_torch
def test_memory_with_pages_is_what_such_a_python_reads(tmp_path):
    (tmp_path / "child.py").write_text(_CHILD)
    done = record(
        tmp_path, _STARTS, PYTHONPATH=installed(tmp_path), MEMLAB_PHANTOM_BACKED="1"
    )
    assert done.returncode == 0, done.stderr
    assert "2 0.5\n" not in done.stdout and "made up" not in done.stderr + done.stdout
