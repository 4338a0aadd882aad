"""What the verdict says of programs that run out of memory holds when they are run again."""

import re

import pytest
from amounts import amount
from on_phantom import needs_torch
from oom_programs import NAMES, batch_of, fits, largest, make_fit

from memlab._report import make_fit as words

pytestmark = [pytest.mark.cuda, pytest.mark.slow, needs_torch]

# One of each kind: a batch, a batch beside data, no batch, not to be told.
FEW = ["attention", "forward", "leak", "optimizer", "second_step", "variable_length"]


def check(fit, name, folder, most=None):
    """Holds FIT to what fits: the named batch, and none more than 15 % or one above it."""
    if not fit["batch_named"]:
        assert "memlab fit --vary batch=1.." in words.batch(fit)
        return
    assert fit["batch_argument"] == "--batch"
    assert fit["batch_recorded"] == batch_of(name)
    named = fit["batch"]
    above = max(named + 1, named * 115 // 100)
    if named:
        assert f"--batch {named} " in words.batch(fit)
        assert fits(name, named, folder)
    else:
        assert words.batch(fit).startswith("No batch fits")
    if most is None:
        assert not fits(name, above + 1, folder)
    else:
        assert most <= above


@pytest.mark.parametrize("name", FEW)
def test_a_named_batch_is_the_one_that_fits(name, tmp_path):
    verdict, said = make_fit(name, tmp_path)
    kinds = [finding["kind"] for finding in verdict["findings"]]
    assert kinds[0] == "out_of_memory" and "fragmented" not in kinds
    assert "Verdict: Out of memory" in said
    assert not [c for c in verdict["changes"] if c["kind"] == "settings"]
    check(verdict["make_fit"], name, tmp_path)


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


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_the_largest_that_fits(name, tmp_path):
    if not amount("OOMS", 0):
        pytest.skip("a bisection: in make test-nightly")
    fit = make_fit(name, tmp_path)[0]["make_fit"]
    most = largest(name, batch_of(name), tmp_path)
    print(f"{name:16} {batch_of(name):6} {most:6}", fit["batch"] if fit["batch_named"] else "-")
    check(fit, name, tmp_path, most)
