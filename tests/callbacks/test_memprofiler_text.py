"""What MemProfiler writes: YAML, and reports in lines."""

import math
import random

import pytest

from memlab.callbacks._memprofiler import fsdp_memory
from memlab.callbacks._memprofiler import yaml as _yaml


def test_yaml_is_what_was_written():
    yaml = pytest.importorskip("yaml")
    draw = random.Random(7)
    texts = [
        "0.training_step.2.end",
        "active.all.peak",
        "cuda:1.x",
        "yes",
        "N",
        "null",
        "~",
    ]
    texts += [
        "0x1F",
        "1e5",
        "1_000",
        ".inf",
        "1:30",
        "- a",
        "a: b",
        "#",
        "",
        " ",
        "é",
        '"',
        "\n",
    ]
    values = [0, -1, 2**63, True, None, 1.5, 1e16, 1e-7, -0.0, "yes", "a: b"]
    for _ in range(50):
        data = {
            draw.choice(texts): {t: draw.choice(values) for t in draw.sample(texts, 5)}
            for _ in range(3)
        }
        written = _yaml.to_yaml(data).decode()
        assert yaml.safe_load(written) == data, written
    assert _yaml.to_yaml(
        {"0.f.1.end": {"rss": 1, "a": math.inf}, "b": {}}
    ).decode() == ('0.f.1.end:\n  a: "inf"\n  rss: 1\nb: {}\n')


MIB = 1 << 20
FIGURES = {
    "peak": {
        "cuda:0": {"Sharded Param": MIB, "Total": 3 * MIB // 2},
        "cpu": {"Total": 4},
    },
    "modules": {
        "Net.10": {"Before Pre-Forward # 1": {"cuda:0": {"Inputs": MIB, "Total": MIB}}},
        "Net.9": {
            "Peak Forward # 1": {"cuda:0": {"Inputs": 0, "Total": MIB}},
            "Peak Forward # 2": {},
        },
        "Net.9.linear": {},
    },
}


def test_report_in_lines():
    text = fsdp_memory.report(FIGURES, "step", 2, depth=2, units="MiB", tabulate=False)
    rule = "-" * 80
    assert text.splitlines() == [
        "Iteration 2 step Peak FSDP memory stats:",
        rule,
        "Device: cuda:0",
        "\tSharded Param: 1.0 MiB",
        "\tTotal: 1.5 MiB",
        rule,
        "Iteration 2 step Modulewise FSDP memory stats:",
        rule,
        "Module:  Net.9",
        "Peak Forward",
        "# 1:",
        "Device: cuda:0",
        "\tInputs: 0.0 MiB",
        "\tTotal: 1.0 MiB",
        "# 2:",
        "No memory tracked.",
        "",
        "Module:  Net.10",
        "Before Pre-Forward",
        "# 1:",
        "Device: cuda:0",
        "\tInputs: 1.0 MiB",
        "\tTotal: 1.0 MiB",
        "",
        rule,
    ]
    nothing = {"peak": {}, "modules": {}}
    for tabulate in (False, True):
        text = fsdp_memory.report(
            nothing, "f", 1, depth=1, units="B", tabulate=tabulate
        )
        assert text.splitlines()[2] == "No memory tracked."


@pytest.mark.parametrize("units", ["B", "KiB", "MiB"])
def test_reports_are_worded_as_torchs(torch, capsys, units):
    tracker = pytest.importorskip("torch.distributed._tools.mem_tracker")
    kinds = [tracker._MemRefType.PARAM, tracker._MemRefType.ACT, "Total"]
    draw = random.Random(3)

    def snapshot():
        return {
            torch.device(d): {
                k: draw.choice((0, 700, MIB, 123456789)) for k in kinds[:2]
            }
            | {"Total": draw.choice((0, 5, 3 * MIB))}
            for d in ("cuda:0", "cpu")
        }

    states = {
        state: [snapshot() for _ in range(2)]
        for state in (tracker._ModState.PRE_FW, tracker._ModState.POST_BW)
    }
    ours = {
        f"{state.value} # {i + 1}": fsdp_memory.plain(each)
        for state, snapshots in states.items()
        for i, each in enumerate(snapshots)
    }
    tracker._print_state_snapshots(states, units)
    assert [
        *fsdp_memory._lines(ours, units),
        "",
    ] == capsys.readouterr().out.splitlines()
    pytest.importorskip("tabulate")
    tracker._print_state_snapshots_tabular(states, units)
    assert [*fsdp_memory._table(ours, units)] == capsys.readouterr().out.splitlines()
    peak = {torch.device("cuda:0"): {kinds[0]: 700, "Total": MIB}}
    tracker._print_snapshot_tabular(peak, units)
    peak = {"": fsdp_memory.plain(peak)}
    assert [*fsdp_memory._table(peak, units)] == capsys.readouterr().out.splitlines()
