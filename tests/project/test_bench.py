"""The benchmark's own arithmetic, and that it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import paired  # noqa: E402
import steps  # noqa: E402


def test_a_drift_of_the_machine_does_not_count():
    """The machine slows down from 100 to 400; the second recorder adds 5 throughout."""
    base = [100, 200, 300, 400]
    added = paired.over([value + 5 for value in base], base)
    assert added["median"] == added["lowest"] == added["highest"] == 5
    assert added["quartiles"] == [5, 5] and added["interval_95"] == [5, 5]


def test_the_interval_holds_the_median_and_is_the_same_each_time():
    values = [float(value) for value in range(31)]
    low, high = paired.interval(values)
    assert 0 < low < 15 < high < 30
    assert paired.interval(values) == [low, high]
    # One repeat of 31 that something disturbed moves nothing.
    assert paired.interval([1.0] * 30 + [900.0]) == [1.0, 1.0]


def test_quartiles_are_those_of_the_values():
    spread = paired.spread([4, 1, 3, 2, 5])
    assert spread["median"] == 3 and spread["quartiles"] == [2, 4]
    assert (spread["lowest"], spread["highest"]) == (1, 5)
    assert spread["values"] == [4, 1, 3, 2, 5]


def test_each_repeat_measures_all_in_a_new_order_after_one_to_warm_up():
    seen = []

    def measure(name):
        seen.append(name)
        return len(seen)

    values = paired.interleave("abc", 6, measure)
    turns = [seen[i : i + 3] for i in range(0, len(seen), 3)]
    assert len(turns) == 7 and all(sorted(turn) == list("abc") for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    assert {name: len(kept) for name, kept in values.items()} == dict.fromkeys("abc", 6)
    assert min(min(kept) for kept in values.values()) > 3


def test_a_step_is_named_in_one_way():
    assert steps.parse("hf-gpt2:8x512:bfloat16") == ("hf-gpt2", 8, 512, "bfloat16")
    for wrong in ("hf-gpt2", "gpt:8x512:float32", "example:8:float32", "example:0x5:float32",
                  "example:8x512:float16"):
        with pytest.raises(ValueError):
            steps.parse(wrong)


@pytest.mark.cuda
def test_a_rehearsal_gives_every_figure(device_environment, tmp_path):
    path = tmp_path / "bench.json"
    command = [sys.executable, BENCH / "run.py", "--quick", "--repeats", "2"]
    command += ["--only", "event", "--only", "step", "--step", "example:1x16:float32"]
    done = subprocess.run(
        [*command, "--json", path],
        env=device_environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parts = json.loads(path.read_text())["parts"]
    step, event = parts["step/example:1x16:float32"], parts["event/cached"]
    # Each allocation has three events in the steady state.
    assert step["events"] > 300 and step["events"] % 3 == 0
    names = {"off", "never attached", "memlab no stacks", "memlab", "torch python"}
    assert names <= set(step["rows"])
    assert len(step["rows"]["memlab"]["ms"]["values"]) == 2
    for work in ("one_size", "many_live"):
        assert names <= set(event[work]["rows"])
        assert "interval_95" in event[work]["rows"]["memlab"]["event_ns_over_off"]
    assert event["depth"] == 22
    assert "Training step of example" in done.stdout


def test_every_file_of_figures_is_in_the_table():
    import results_table

    kept = {path.name for path in (BENCH / "results").iterdir()} - {"index.tsv", "README.md"}
    rows = results_table.rows()
    assert sorted(row["file"] for row in rows) == sorted(kept)
    table = (BENCH / "results" / "README.md").read_text()
    top = BENCH.parent
    for row in rows:
        assert f"({row['file']})" in table
        for path in f"{row['measures']} {row['told in']}".split():
            assert (top / path).exists(), path
