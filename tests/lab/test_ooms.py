"""What the verdict says of programs that run out of memory holds when they are run again.

bench/ooms.py asks it of all of them, against the largest batch that fits."""

import os
import re

import oom_programs
import pytest
from cuda_here import torch_since
from on_phantom import needs_torch
from oom_programs import batch_of, fits, make_fit, most_above

from memlab import phantom

pytestmark = [pytest.mark.cuda, pytest.mark.slow, needs_torch]

# Of each kind one: in a second pass, with convolutions, without a batch, with longer inputs.
FEW = ["accumulation", "conv", "optimizer", "variable_length"]


@pytest.mark.parametrize("name", FEW)
def test_a_named_batch_is_the_one_that_fits(name, tmp_path):
    verdict, said = make_fit(name, tmp_path)
    kinds = [finding["kind"] for finding in verdict["findings"]]
    assert kinds[0] == "out_of_memory" and "fragmented" not in kinds
    assert "Verdict: Out of memory" in said
    assert not [c for c in verdict["changes"] if c["kind"] == "settings"]
    fit = verdict["make_fit"]
    given = batch_of(name)
    if not fit["batch_named"]:
        # The command has the program as it was run, and the memory of the GPU.
        program = f"{os.path.join('tests', 'programs', 'ooms', name)}.py --batch {given}"
        command = f"memlab fit --memory 24207MiB --vary batch=1..{given} "
        assert command in fit["batch_text"] and fit["batch_text"].endswith(program)
        return
    assert (fit["batch_argument"], fit["batch_recorded"]) == ("--batch", given)
    named = fit["batch"]
    if named:
        assert f"--batch {named} " in fit["batch_text"]
        assert fits(name, named, tmp_path)
    else:
        assert fit["batch_text"].startswith("No batch fits")
    assert not fits(name, most_above(named) + 1, tmp_path)


# Blocks of a pass that did not end are not all gradients of parameters: what a checkpoint made
# again grows with the batch.
def test_a_pass_that_a_checkpoint_repeats(tmp_path):
    verdict, _ = make_fit("checkpointed", tmp_path, 222)
    fit = verdict["make_fit"]
    assert verdict["findings"][0]["stage"] == "backward" and fit["batch_named"]
    assert fits("checkpointed", fit["batch"], tmp_path)
    assert not fits("checkpointed", most_above(fit["batch"]) + 1, tmp_path)


# On an H200 of which torch has a part.  cuBLAS's workspace lies in memory that the loss freed,
# which then no longer holds a request of the batch's size.  The head is the last module, though
# an attention's last product, which it runs without a call, asked for nothing.  mse_loss() asks
# for two blocks, of which the second fails.  See bench/results/ooms_wide_*.
@pytest.mark.skipif(not torch_since(2, 10), reason="needs per_process_memory_fraction")
@pytest.mark.parametrize(
    ("name", "gib", "given"),
    [
        ("squares", 22.5, 115500),
        ("squares", 22.5, 154688),
        ("logits", 15, 48),
        ("squared_error", 15, 88112),
    ],
)
def test_of_a_part_of_an_h200(name, gib, given, tmp_path, monkeypatch):
    conf = f"per_process_memory_fraction:{gib / 139.8:.4f}"
    h200 = {**oom_programs.device, **phantom.environment(gpu="h200"),
            "PYTORCH_CUDA_ALLOC_CONF": conf}  # fmt: skip
    monkeypatch.setattr(oom_programs, "device", h200)
    fit = make_fit(name, tmp_path, given)[0]["make_fit"]
    assert fit["batch_named"] and fits(name, fit["batch"], tmp_path)
    # Programs that assign the loss to a variable hold that of the step before, too, a block more.
    above = fit["batch"] * 6 // 5 if name == "squared_error" else most_above(fit["batch"])
    assert not fits(name, above + 1, tmp_path)
    assert fit["needs_least_bytes"] <= fit["needs_most_bytes"]


def test_what_was_not_reached_is_told(tmp_path):
    verdict, said = make_fit("forward", tmp_path)
    fit = verdict["make_fit"]
    number = re.search(r"Out of memory.*\n", said)
    assert number
    # Of twelve layers some, and the head; no gradient was there, and no state: of AdamW two
    # of each of 4 bytes.
    assert 1 < fit["unseen"]["modules"] < 12
    assert fit["unseen"]["optimizer_state_bytes"] == 2 * fit["unseen"]["gradient_bytes"]
    assert not fit["unseen"]["optimizer_assumed"]
    chosen = [item for item in fit["remedies"] if item["chosen"]]
    assert chosen and fit["chosen_need_bytes"] <= fit["memory_bytes"]


@pytest.mark.parametrize(("name", "fragmented"), [("fragmentation", True), ("forward", False)])
def test_fragmentation_is_named_if_it_fits_without(name, fragmented, tmp_path, monkeypatch):
    verdict, _ = make_fit(name, tmp_path)
    kinds = [finding["kind"] for finding in verdict["findings"]]
    assert ("fragmented" in kinds) is fragmented
    settings = [c["conf"] for c in verdict["changes"] if c["kind"] == "settings"]
    assert settings == ["expandable_segments:True"] * fragmented
    variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert fits(name, batch_of(name), tmp_path, variables) is fragmented
