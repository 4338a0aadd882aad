"""`memlab explain --measure`: what fits is measured by runs of the program that is given."""

import json
import os
import sys

import pytest
from answer_shapes import check
from on_phantom import needs_torch
from on_phantom import run as run_on_phantom

from memlab import Error, _answers
from memlab._cli import main
from memlab._lab import measure

GIB = 1 << 30
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


def explanation(*confs, remedies=()):
    return {
        "devices": [
            {
                "advice": [{"kind": "settings", "conf": conf} for conf in confs],
                "make_fit": {"remedies": [{"kind": kind} for kind in remedies]},
            }
        ]
    }


class Fit:
    """Programs that need a GiB for each of a batch, half of it with expandable segments, and
    fail with collection."""

    def __init__(self):
        self.asked = []

    def need(self, batch):
        return batch * GIB // (2 if "expandable" in os.environ.get(VARIABLE, "") else 1)

    def __call__(self, words, memory, vary):
        self.asked.append((os.environ.get(VARIABLE), vary))
        if "collection" in os.environ.get(VARIABLE, ""):
            raise Error("exit status 1\nand more")
        batch = int(words[-1])
        rows = []
        for value in (1, 2, 4, 8) if vary else ():
            fits = self.need(value) <= memory
            peak = self.need(value) if fits else None
            rows.append(
                {"value": value, "fits": fits, "reserved_peak_bytes": peak, "error": None}
            )
        return {
            "fits": self.need(batch) <= memory,
            "devices": [{"reserved_peak_bytes": self.need(batch)}],
            "vary": {"largest": 4, "tried": rows} if vary else None,
        }


def test_settings_that_were_proposed_and_batches_are_tried(monkeypatch):
    monkeypatch.setenv(VARIABLE, "max_split_size_mb:64")
    fit = Fit()
    proposed = explanation("garbage_collection_threshold:0.8", "", remedies=["settings", "lora"])
    measured = measure.measure(fit, ["train.py", "--batch", "8"], 5 * GIB, proposed)
    check(measured, _answers.Measured)
    # Nothing of what was tried stays in the environment.
    assert os.environ[VARIABLE] == "max_split_size_mb:64"
    assert fit.asked == [
        ("max_split_size_mb:64", None),
        ("garbage_collection_threshold:0.8", None),
        (None, None),
        ("expandable_segments:True", None),
        ("max_split_size_mb:64", "batch=1..8"),
    ]
    assert (measured["conf"], measured["conf_fits"]) == ("expandable_segments:True", True)
    assert (measured["batch_given"], measured["batch_largest"]) == (8, 4)
    assert measure.text(measured) == (
        "Measured on the phantom device with 5.00 GiB\n"
        "  --batch 8                                                 does not fit, needs "
        "8.00 GiB reserved\n"
        "  PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8  fails: exit status 1\n"
        "  unset PYTORCH_CUDA_ALLOC_CONF                             does not fit, needs "
        "8.00 GiB reserved\n"
        "  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True          fits, needs 4.00 GiB "
        "reserved\n"
        "  --batch 1                                                 fits, needs 1.00 GiB "
        "reserved\n"
        "  --batch 2                                                 fits, needs 2.00 GiB "
        "reserved\n"
        "  --batch 4                                                 fits, needs 4.00 GiB "
        "reserved\n"
        "The largest that fits: --batch 4"
    )


def test_what_fits_as_given_is_not_made_smaller(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    fit = Fit()
    measured = measure.measure(fit, ["train.py", "--batch", "4"], 5 * GIB, explanation())
    assert fit.asked == [(None, None)]
    assert measure.text(measured).endswith("--batch 4 fits, as given.")
    assert measured["conf_fits"] is None


def test_a_program_without_a_batch():
    measured = measure.measure(Fit(), ["train.py", "8"], 5 * GIB, explanation())
    assert measured["batch_largest"] is None
    said = measure.text(measured)
    assert "as given  does not fit, needs 8.00 GiB reserved" in said
    assert said.endswith("No argument for a batch: give one, such as --batch 32.")


# Keeps 8 blocks of 48 MiB for each of a batch, each in the place of one of 64: what is asked
# for at the end fits in none of the rests.  With a batch of 4 that takes 2048 and 512 MiB, of
# some 2400 that torch has of 3 GiB; with 3 it takes 1536 and 384.
FRAGMENTED = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
batch = parser.parse_args().batch
kept = []
for _ in range(8):
    large = torch.empty(128 * batch << 20, dtype=torch.uint8, device="cuda")
    del large
    kept.append(torch.empty(96 * batch << 20, dtype=torch.uint8, device="cuda"))
whole = torch.empty(256 * batch << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.cuda
@pytest.mark.slow
@needs_torch
def test_a_recording_that_ran_out(tmp_path, monkeypatch, capsys):
    script = tmp_path / "train.py"
    script.write_text(FRAGMENTED)
    monkeypatch.chdir(tmp_path)
    done = run_on_phantom(
        "import runpy, sys\n"
        "import memlab\n"
        "snapshot = memlab.MemorySnapshot(source='cuda')\n"
        "snapshot.start()\n"
        "try:\n"
        f"    sys.argv = ['train.py', '--batch', '2']\n"
        f"    runpy.run_path({str(script)!r}, run_name='__main__')\n"
        "except Exception as error:\n"
        "    assert 'out of memory' in str(error), error\n"
        f"snapshot.save({str(tmp_path / 'run.pickle')!r})\n",
        gpu="rtx4090",
        memory=3 << 30,
    )
    assert done.returncode == 0, done.stderr
    words = ["explain", "run.pickle", "--memory", "3GiB", "--json"]
    words += ["--measure", "--", "train.py", "--batch", "2"]
    assert main.main(words) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    check(measured, _answers.Measured)
    rows = {(row["conf"], row["batch"]): row["fits"] for row in measured["tried"]}
    assert rows[None, 2] is False
    assert rows["expandable_segments:True", 2] is True
    assert measured["batch_largest"] == 1 and rows[None, 1] is True
    assert sys.modules.get("train") is None
