"""memlab.sweep and `memlab fit --table`: which settings are tried, on which GPU, by whom, and
what is kept of it.

All but one test try a program that is a function: it fits up to a batch for each GPU.
"""

import concurrent.futures
import errno
import json
import tempfile
import xml.etree.ElementTree
from pathlib import Path

import pytest
from answer_shapes import check
from on_phantom import needs_torch

import memlab
from memlab import _answers
from memlab._cli import main
from memlab._fit import needs, sweep, table_file, text

MIB = 1 << 20
GIB = 1 << 30
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "fit_steps.py"
WORDS = ["a.py", "--batch", "1", "--tp", "1"]


class Program:
    """Needs 1 GiB a sample, less with more tp; 3 is no tp.  tried: what it was asked."""

    def __init__(self):
        self.tried = []

    def __call__(self, question):
        words, _, gpu, *_ = question
        batch, tp = int(words[2]), int(words[4])
        self.tried.append((gpu, tp, batch))
        keys = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")
        if tp == 3:
            return {"fits": False, **dict.fromkeys(keys), "rank": None, "error": "no tp of 3"}
        total = batch * GIB // tp
        fits = total <= memlab.phantom.gpus()[gpu].total_bytes
        figures = dict.fromkeys(keys, total if fits else None)
        return {"fits": fits, **figures, "rank": None, "error": None}


@pytest.fixture
def program(monkeypatch):
    made = Program()
    monkeypatch.setattr(sweep, "try_out", made)
    return made


def swept(gpus, varied, **options):
    answer = sweep.sweep_of(WORDS, gpus, varied, None, None, 900, **options)
    check(answer, _answers.Sweep)
    return answer


def test_a_row_for_each_gpu_and_combination(program):
    answer = swept(["t4", "l4"], ["batch=1..64", "tp=1,2"])
    found = [(row["gpu"], row["settings"], row["largest"]) for row in answer["rows"]]
    # 14 and 22 GiB, and twice as much.
    assert found == [
        ("t4", {"tp": "1"}, 14),
        ("t4", {"tp": "2"}, 29),
        ("l4", {"tp": "1"}, 22),
        ("l4", {"tp": "2"}, 44),
    ]
    first = answer["rows"][0]
    assert (first["vary"], first["highest"], first["fits"]) == ("batch", 64, True)
    assert first["total_bytes"] == 14 * GIB
    assert first["headroom_bytes"] == first["capacity_bytes"] - 14 * GIB
    assert answer["tried"] == len(program.tried) == len(set(program.tried))
    # Above one that does not fit nothing is tried.
    assert max(batch for gpu, tp, batch in program.tried if (gpu, tp) == ("t4", 1)) == 16


def test_values_alone_are_all_tried(program):
    answer = swept(["l4"], ["tp=2,3,4"])
    assert program.tried == [("l4", 2, 1), ("l4", 3, 1), ("l4", 4, 1)]
    assert [row["fits"] for row in answer["rows"]] == [True, False, True]
    assert answer["rows"][1]["error"] == "no tp of 3"


def test_settings_that_do_not_meet_a_condition_are_left_out(program):
    answer = swept(["l4"], ["tp=1,2,4", "PP=1,2"], where=["tp * PP == 4", "PP > 1"])
    assert [row["settings"] for row in answer["rows"]] == [{"tp": "2", "PP": "2"}]


def test_a_condition_on_a_range_chooses_its_values(program):
    """Of 22 GiB: the multiples of 8 up to 22, of 6 up to 30, at most 22 and 40."""
    answer = swept(["l4"], ["batch=1..30", "tp=1,2"], where=["batch % (8 - tp // 2 * 2) == 0"])
    assert [(row["largest"], row["highest"]) for row in answer["rows"]] == [(16, 24), (30, 30)]
    assert [batch for _, _, batch in program.tried] == [8, 16, 24, 6, 12, 24, 30]


def test_a_long_range_is_not_walked_through(program):
    answer = swept(["l4"], ["batch=1..1000000000000"], where=["batch % 8 == 0"])
    assert answer["rows"][0]["largest"] == 16
    assert answer["rows"][0]["highest"] == 10**12
    assert [batch for _, _, batch in program.tried] == [8, 16, 32, 24]


def test_a_condition_that_no_value_meets_for_long_is_refused(program):
    with pytest.raises(memlab.Error, match="no value from 1 to 100000 meets the conditions: give"):
        swept(["l4"], ["batch=1..1000000000000"], where=["batch == 0"])
    with pytest.raises(ValueError, match="no values meet 'batch == 0'"):
        swept(["l4"], ["batch=1..64"], where=["batch == 0"])


def test_a_gpu_of_the_same_chip_with_more_memory_tells_of_the_others(program):
    """The A100 with 80 GB fits 79 batches, that with 40 fits 39; the L40S is another chip."""
    answer = swept(["a100-40", "l40s", "a100-80"], ["batch=1..128"])
    found = [(row["gpu"], row["largest"], row["total_bytes"]) for row in answer["rows"]]
    assert found == [
        ("a100-40", 39, 39 * GIB), ("l40s", 44, 44 * GIB), ("a100-80", 79, 79 * GIB),
    ]  # fmt: skip
    tried = {gpu: [b for g, _, b in program.tried if g == gpu] for gpu in ("a100-80", "a100-40")}
    # 1 to 32 fit there, too.  64 fits the larger one alone: here torch might free its cache.
    assert tried["a100-80"][:8] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert tried["a100-40"] == [64, 48, 40, 36, 38, 39]
    assert answer["followed"] == 6
    assert "; 6 followed from a GPU of the same chip with more memory." in "\n".join(text.table(answer))
    # Above what fits the larger one nothing is tried on the smaller one.
    program.tried.clear()
    answer = swept(["a100-40", "a100-80"], ["batch=100,20,90"])
    assert [row["fits"] for row in answer["rows"]] == [False, True, False] * 2
    assert {gpu for gpu, _, _ in program.tried} == {"a100-80"}


def test_by_several_workers_each_need_is_tried_once(program):
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        answer = swept(["h100", "h200", "gh200"], ["batch=1..64", "tp=1,2,3"], executor=executor)
    assert [row["largest"] for row in answer["rows"]] == [64, 64, None] * 3
    of_tp = [(tp, batch) for _, tp, batch in program.tried if tp != 3]
    assert len(of_tp) == len(set(of_tp))
    # What failed for another reason than memory is tried on each.
    assert sorted(gpu for gpu, tp, _ in program.tried if tp == 3) == ["gh200", "h100", "h200"]


def test_ranks_that_share_a_device_tell_nothing(program):
    words = ["torchrun", "--nproc-per-node", "4", "a.py", "--tp", "1"]
    question = [words, {}, "h200", None, 2, None, None, 900]
    assert needs.of(question) is None
    assert needs.of([*question[:4], 4, *question[5:]]) is not None


@pytest.mark.parametrize(
    "text", ["tp.real", "print(tp)", "[tp]", "tp =", "tp ** 9", "lambda: tp", "tp if tp else 1"]
)
def test_a_condition_calls_nothing(text):
    with pytest.raises(ValueError, match="is not a condition; write for example 'tp "):
        swept(["l4"], ["tp=1,2"], where=[text])


def test_a_condition_that_cannot_be_told(program):
    with pytest.raises(ValueError, match="'4 / tp > 1' with tp=0: division by zero"):
        swept(["l4"], ["tp=0,2"], where=["4 / tp > 1"])
    with pytest.raises(ValueError, match="'dtype > 1' with dtype=bf16: '>' not supported"):
        swept(["l4"], ["dtype=bf16,fp8"], where=["dtype > 1"])


def test_a_condition_knows_the_world(program):
    around = sweep.world.of(8, None, None, WORDS)
    found = sweep.settings(["model.tp=1,2,4"], ["model_tp * 2 == world_size // nodes"], around)
    assert found == [([("model.tp", "4")], None, None)]


PRICES = {"t4": 0.5, "l4": 0.75}


def test_the_cheapest_that_fits_is_named(program):
    """Of the T4's two rows one does not fit; of equal prices the larger batch is better."""
    answer = swept(["l4", "t4"], ["batch=1..64", "tp=3,2,1"], prices=PRICES)
    assert [row["price"] for row in answer["rows"]] == [0.75] * 3 + [0.5] * 3
    assert answer["cheapest"] == 4
    lines = list(text.table(answer))
    assert lines[0].endswith("left  an hour")
    assert lines[5].endswith("82.0 MiB     0.50")
    assert "Cheapest that fits: t4 tp=2 batch=29." in lines
    assert swept(["l4"], ["tp=1,2"])["cheapest"] is None
    assert swept(["l4"], ["tp=3,3"], prices=PRICES)["cheapest"] is None


def test_an_hour_is_that_of_all_gpus(program):
    answer = sweep.sweep_of(WORDS, ["t4"], ["tp=1,2"], None, None, 9, devices=4, prices=PRICES)
    assert answer["rows"][0]["price"] == 2


def test_the_page_has_a_bar_for_each_row(program):
    answer = swept(["t4", "l4"], ["batch=1..64", "tp=2,3"], prices=PRICES)
    shown = "".join(table_file.page(answer))
    svg = xml.etree.ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    titles = [group.find("title").text for group in svg]
    assert titles == [
        "t4 tp=2 batch=29: leaves 82.0 MiB, 0.50 an hour",
        "t4 tp=3: failed",
        "l4 tp=2 batch=44: leaves 35.0 MiB, 0.75 an hour",
        "l4 tp=3: failed",
    ]
    wide = [[float(bar.get("width")) for bar in group.findall("rect")] for group in svg]
    # The GPU's memory, then the total and the peak, which are one here.
    assert [len(bars) for bars in wide] == [3, 1, 3, 1]
    row = answer["rows"][0]
    assert wide[0][1] == wide[0][2]
    share = row["total_bytes"] / row["capacity_bytes"]
    assert wide[0][1] / wide[0][0] == pytest.approx(share, abs=0.001)
    assert wide[0][0] / wide[2][0] == pytest.approx(14.58 / 22.03, abs=0.01)
    assert "Cheapest that fits: t4 tp=2 batch=29." in shown


def test_names_cannot_change_the_page(program):
    answer = swept(["l4"], ["tp=1,2"])
    answer["program"] = answer["rows"][0]["settings"]["tp"] = "<script>alert(1)</script>"
    assert "<script" not in "".join(table_file.page(answer))


def test_parquet_has_a_row_for_each(program, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    answer = swept(["t4"], ["batch=1..64", "tp=2,3"], prices={"t4": 0.5})
    path = tmp_path / "plan.parquet"
    table_file.write(answer, str(path))
    first, second = parquet.read_table(path).to_pylist()
    row = answer["rows"][0]
    assert first == row | {"settings": [("tp", "2")], "program": "a.py", "cheapest": True}
    assert (second["fits"], second["largest"], second["total_bytes"]) == (False, None, None)
    assert (second["cheapest"], second["error"]) == (False, "no tp of 3")


def test_an_executor_runs_the_tries(program):
    with concurrent.futures.ThreadPoolExecutor(3) as executor:
        answer = swept(["t4", "l4"], ["batch=1..64", "tp=1,2,3"], executor=executor)
    assert [row["largest"] for row in answer["rows"]] == [14, 29, None, 22, 44, None]
    assert len(program.tried) == len(set(program.tried))


class Losing(concurrent.futures.Executor):
    """Loses its worker after some calls."""

    def __init__(self, calls):
        self.calls = calls

    def submit(self, call, /, *arguments):
        future = concurrent.futures.Future()
        self.calls -= 1
        if self.calls < 0:
            future.set_exception(concurrent.futures.BrokenExecutor())
        else:
            future.set_result(call(*arguments))
        return future


def test_after_a_worker_was_lost_nothing_is_done_twice(program, tmp_path):
    path = tmp_path / "answers.jsonl"
    asked = ["t4", "l4"], ["batch=1..64", "tp=1,2"]
    with pytest.raises(memlab.Error, match="a worker of the executor ended"):
        swept(*asked, answers=path, executor=Losing(7))
    before = len(path.read_text().splitlines())
    # What came back before the loss was seen is kept.
    assert 0 < before <= 7
    done = list(program.tried)
    answer = swept(*asked, answers=path)
    assert [row["largest"] for row in answer["rows"]] == [14, 29, 22, 44]
    assert answer["reused"] == before
    again = [item for item in program.tried[len(done) :] if item in done]
    assert len(again) == len(done) - before
    assert swept(*asked, answers=path)["tried"] == 0


def test_the_line_that_was_being_written_is_written_again(program, tmp_path):
    path = tmp_path / "answers.jsonl"
    swept(["l4"], ["tp=1,2"], answers=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert swept(["l4"], ["tp=1,2"], answers=path)["tried"] == 1
    assert path.read_bytes() == whole


def test_a_full_disk_names_the_file(program, tmp_path, monkeypatch):
    table = tmp_path / "plan.parquet"
    parquet = pytest.importorskip("pyarrow.parquet")

    def full(*_):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(parquet, "write_table", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{table}'"):
        table_file.write(swept(["l4"], ["batch=1..2"]), str(table))
    # Of the tries.

    def opened(path, how):
        return open("/dev/full" if how == "a" else path, how)

    monkeypatch.setattr(sweep, "open", opened, raising=False)
    with pytest.raises(memlab.Error, match="tried.jsonl: a try was not written: No space left"):
        swept(["l4"], ["batch=1..2"], answers=tmp_path / "tried.jsonl")


def test_a_changed_program_is_tried_again(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ("first", "second"):
        Path("a.py").write_text(words)
        assert swept(["l4"], ["tp=1,2"], answers="done")["tried"] == 2
    assert swept(["l4"], ["tp=1,2"], answers="done")["tried"] == 0


def test_tries_are_kept_in_no_device(program):
    """Some can be read for ever."""
    with pytest.raises(memlab.Error, match="/dev/zero is no regular file"):
        swept(["l4"], ["tp=1,2"], answers="/dev/zero")


def test_a_file_of_other_lines_is_refused(program, tmp_path):
    path = tmp_path / "train.log"
    path.write_text("step 1\n")
    with pytest.raises(memlab.Error, match="train.log:1 is no try of a sweep"):
        swept(["l4"], ["tp=1,2"], answers=path)
    assert path.read_text() == "step 1\n"


@pytest.mark.parametrize(
    "varied, said",
    [
        (["batch=1..4", "tp=1..4"], "batch and tp are ranges; .* as tp=1,2,4"),
        (["tp=1,2", "tp=4,8"], "tp is varied twice"),
        (["tp=1,"], "is not a range"),
    ],
)
def test_settings_that_are_none_are_refused(varied, said):
    with pytest.raises(ValueError, match=said):
        swept(["l4"], varied)


def test_the_table_has_a_line_for_each_row(program):
    lines = list(text.table(swept(["t4"], ["batch=1..64", "tp=2,3"])))
    assert [line.split() for line in lines[:3]] == [
        ["GPU", "tp", "batch", "peak", "in", "all", "left"],
        ["t4", "2", "29", "fits", "14.5", "GiB", "14.5", "GiB", "82.0", "MiB"],
        ["t4", "3", "-", "failed"],
    ]
    assert lines[3:] == [
        "batch is the largest value that fits.",
        "t4 tp=3 failed for another reason than memory: no tp of 3",
        "Runs: 11; known before: 0.",
    ]


def test_a_row_has_the_range_over_the_rows_of_experts(program, monkeypatch):
    """Without tp more of them may come than fit; a tp of 2 has none."""

    def experts(question):
        found = program(question)
        total = found["total_bytes"]
        ends = total and question[0][4] == "1" and [total // 2, total + 2 * GIB]
        return {**found, "total_range_bytes": ends or None}

    monkeypatch.setattr(sweep, "try_out", experts)
    answer = swept(["rtxpro6000"], ["batch=1..128", "tp=1,2"])
    first, second = answer["rows"]
    assert first["total_range_bytes"] == [47 * GIB, 96 * GIB]
    assert second["total_range_bytes"] is None
    lines = list(text.table(answer))
    assert max(map(len, lines)) <= 80
    assert lines[0].split()[-4:] == ["none", "to", "all", "left"]
    assert "47.0-96.0 GiB" in lines[1] and "-" not in lines[2]
    assert "If all come to one rank, it does not fit: rtxpro6000 tp=1 batch=94." in lines


@pytest.mark.parametrize(
    "words, said",
    [
        (["--jobs", "2"], "--jobs is for a table: add --table"),
        (["--cluster", "auto"], "--cluster is for a table: add --table"),
        (["--table", "--jobs", "2", "--cluster", "auto"], "exclude each other"),
        (["--table", "--out", "a.txt"], "a.txt: the table is written to a name that ends in"),
        (["--table", "--price", "h100"], "'h100' is not GPU=PRICE, as in h100=2.5"),
        (["--table", "--price", "abacus=1"], "unknown GPU 'abacus'"),
        (["--vary", "tp=1,2", "--where", "tp * pp == 8"], "pp is not varied; known: tp"),
        (["--vary", "tp=1,2", "--where", "tp > 2"], "no values meet 'tp > 2'"),
        (["--gpu", "l4,abacus"], "unknown GPU 'abacus'"),
        (["--vary", "a=1..2", "--vary", "b=1..2"], "a and b are ranges"),
    ],
)
def test_wrong_usage(words, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main.main(["fit", *words, str(PROGRAM)])
    assert exit.value.code == 2
    assert said in capsys.readouterr().err


@needs_torch
def test_a_pool_of_processes_tries_a_program(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--vary", "BATCH=100,30000", "--gpu", "l4", "--jobs", "2", "--answers", "done"]
    assert main.main(["fit", *words, "--json", str(PROGRAM), "end"]) == 0
    answer = json.loads(capsys.readouterr().out)
    few, many = answer["rows"]
    # A weight, two of Adam, a gradient, two temporaries, all of 64 MiB, and the inputs.
    assert few["allocated_peak_bytes"] == (6 * 64 + 100) * MIB
    assert (few["fits"], many["fits"], many["total_bytes"]) == (True, False, None)
    assert main.main(["fit", *words, str(PROGRAM), "end"]) == 0
    assert "Runs: 0; known before: 2." in capsys.readouterr().out


LOSES = """
import os, signal, torch
weight = torch.nn.Parameter(torch.empty(1 << 18, device="cuda"))
os.kill(os.getppid(), signal.SIGKILL)
signal.pause()
"""


@needs_torch
def test_a_worker_that_was_killed_leaves_no_files(tmp_path, monkeypatch, capsys):
    """The program kills the worker of the pool that waits for it."""
    (tmp_path / "place").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "place"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "place"))
    script = tmp_path / "train.py"
    script.write_text(LOSES)
    assert main.main(["fit", "--table", "--jobs", "1", str(script)]) == 1
    assert "a worker of the executor ended" in capsys.readouterr().err
    assert list((tmp_path / "place").glob("memlab_fit_*")) == []
