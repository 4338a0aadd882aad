"""The ranges of memlab fit where convolutions were not measured on a GPU."""

import pytest
from on_phantom import needs_torch

import memlab
from memlab._fit import answer as _fit_answer


@needs_torch
@pytest.mark.parametrize("batch, estimated", [(32, False), (31, True)])
def test_convolutions_that_no_gpu_was_measured_at_give_a_range(tmp_path, batch, estimated):
    script = tmp_path / "train.py"
    script.write_text(f"""
import torch
images = torch.empty({batch}, 3, 224, 224, device="cuda")
torch.nn.Conv2d(3, 64, 7, 2, 3).cuda()(images).sum().backward()
""")
    answer = memlab.fit(script)
    said = [note for note in answer["notes"] if "not measured on a GPU" in note]
    assert [note.endswith("5 runs, with what it takes for similar ones") for note in said] == (
        [True] if estimated else []
    )
    [device] = answer["devices"]
    low, high = device["allocated_peak_range_bytes"]
    assert low <= device["allocated_peak_bytes"] <= high
    assert (low < high) == estimated
    low, high = device["reserved_peak_range_bytes"]
    assert low <= device["reserved_peak_bytes"] <= high


def test_a_range_of_several_runs():
    assert _fit_answer._predicted([7, 7, 7]) == [7]
    # Student's t of 1 degree, 12.706, times the standard deviation, 2 / sqrt(2), and
    # sqrt(3 / 2), around 101.
    assert _fit_answer._predicted([100, 102]) == [79, 123]
    assert _fit_answer._predicted([0, 2])[0] == 0
