"""memlab fit: whether a program fits on a GPU that is not here.

What a command becomes and which values are tried is tested without a program; the answers
with programs of torch alone, each in a process of its own on the phantom device.
"""

import json
import signal
import sys
import types
from pathlib import Path

import pytest
from amounts import amount
from answer_shapes import check
from on_phantom import needs_torch

import memlab
from memlab import _answers
from memlab._cli import fit as _fit_command
from memlab._cli import main
from memlab._fit import answer as _fit_answer
from memlab._fit import program, vary
from memlab._fit import run as _fit_run
from memlab._fit import text as _fit_text

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "programs" / "fit_steps.py"
CONTEXT = 610 * MIB
# A weight, two of Adam, a gradient, two temporaries, all of 64 MiB, and the inputs.
ALLOCATED = (6 * 64 + 100) * MIB
# A segment for each, and one for the loss.
RESERVED = ALLOCATED + 2 * MIB

def test_buckets_that_are_made_anew_may_be_there_twice():
    def notes(*rebuilt):
        others = {"made_up": [0, []], "unequal": False, "told_parts": []}
        ranks = {n: {"rebuilt_bytes": bytes, **others} for n, bytes in enumerate(rebuilt)}
        run = types.SimpleNamespace(ranks=ranks, failed=False, alone=False)
        return _fit_answer._notes(run)

    assert notes(0, 0) == []
    (note,) = notes(0, 3 * MIB)
    assert note.endswith("the peak is up to 3.00 MiB higher")


# --- Commands ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, options, module, rest",
    [
        (["a.py", "-m", "x"], [], False, ["a.py", "-m", "x"]),
        (["-u", "-X", "dev", "a.py"], ["-u", "-X", "dev"], False, ["a.py"]),
        (["-Xdev", "-m", "a.b", "--c"], ["-Xdev"], True, ["a.b", "--c"]),
        (["-u"], ["-u"], False, []),
    ],
)
def test_arguments_of_python(words, options, module, rest):
    assert program.split(words) == (options, module, rest)


@pytest.mark.parametrize("words", [["-c", "pass"], ["-"]])
def test_a_program_must_be_a_file_or_module(words):
    with pytest.raises(ValueError, match="give a program as a file"):
        program.split(words)
    with pytest.raises(memlab.Error, match="give a program as a file"):
        _fit_run.Command(["python", *words])


def test_a_script_runs_in_the_interpreter_that_is_named(tmp_path):
    script = tmp_path / "train.py"
    script.touch()
    started = ["-m", "memlab._fit.program", str(script), "--lr", "1"]
    for first, python in [
        ([], sys.executable),
        (["python"], sys.executable),
        (["python3.12"], sys.executable),
        (["/other/bin/python3"], "/other/bin/python3"),
    ]:
        command = _fit_run.Command([*first, str(script), "--lr", "1"])
        assert command.argv(tmp_path) == ([python, *started], {})
        assert command.name == "train.py"


def test_torchrun_starts_its_ranks_by_a_python_of_ours(tmp_path, monkeypatch):
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/usr/bin/python3\n")
    torchrun.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    command = _fit_run.Command(["torchrun", "--nproc-per-node", "2", "a.py"])
    words, variables = command.argv(tmp_path)
    assert words == [sys.executable, str(torchrun), "--nproc-per-node", "2", "a.py"]
    with open(variables["PYTHON_EXEC"]) as file:
        assert file.read().endswith('exec "$MEMLAB_FIT_PYTHON" -m memlab._fit.program "$@"\n')


@pytest.mark.parametrize(
    "words, count",
    [
        (["torchrun", "--nproc-per-node", "4", "a.py"], 4),
        (["/x/torchrun", "--nproc_per_node=2", "a.py"], 2),
        (["torchrun", "--nproc-per-node=gpu", "a.py"], None),
        (["python", "-u", "-m", "torch.distributed.run", "--nproc-per-node", "8"], 8),
        (["-m", "torch.distributed.run", "--nproc_per_node=8", "a.py"], 8),
        (["a.py", "--nproc-per-node", "4"], None),
        (["python", "a.py", "--nproc-per-node", "4"], None),
        (["python"], None),
        (["python", "-c", "pass"], None),
    ],
)
def test_torchrun_says_how_many_devices(words, count):
    assert _fit_run.ranks_of(words) == count


def test_torchrun_is_the_one_beside_the_interpreter(tmp_path, monkeypatch):
    """A memlab that is called by its path has no folder in the PATH."""
    for folder in ("bin", "other"):
        (tmp_path / folder).mkdir()
        torchrun = tmp_path / folder / "torchrun"
        torchrun.write_text("#!/usr/bin/python3\n")
        torchrun.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    words, _ = _fit_run.Command(["torchrun", "a.py"]).argv(tmp_path)
    assert words[1] == str(tmp_path / "bin" / "torchrun")


def test_what_a_program_prints_does_not_steer_a_terminal(tmp_path):
    (tmp_path / "output").write_bytes(b"\x1b[2Ja\tb\r50 %\n\xff\n")
    assert _fit_run._tail(tmp_path / "output") == "\\x1b[2Ja   b\n50 %\n\\xff"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_by_its_clean_up(number):
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as exit, _fit_command._leaving_nothing():
            signal.raise_signal(number)
        assert exit.value.code == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(number):
    """As SIGHUP is of what nohup starts."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with _fit_command._leaving_nothing():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    "words, said",
    [
        (["nowhere.py"], "nowhere.py: no such program"),
        (["python", "nowhere.py"], "nowhere.py: no such program"),
        (["python"], "no program given"),
        (["sh", "a.sh"], "sh is not a Python program; give the script that it starts"),
    ],
)
def test_what_is_no_program(words, said):
    with pytest.raises(memlab.Error, match=said):
        _fit_run.Command(words)


# --- What a run tells -------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, late, ranks, out_of_memory, failed",
    [
        (0, False, [{}], False, False),
        (1, False, [{}], False, True),
        (1, False, [{"out_of_memory": True, "error": "OutOfMemoryError: "}], True, False),
        # The program caught torch's error and ended by sys.exit(1).
        (1, False, [{"devices": [{"ooms": 1}]}], True, False),
        # It went on after that, and failed otherwise.
        (1, False, [{"devices": [{"ooms": 1}], "error": "ValueError: "}], False, True),
        (-15, True, [{"ended": "time"}], False, False),
        # One rank was ended, the other then waited for it in vain.
        (1, False, [{"ended": "stopped"}, {"error": "DistBackendError: "}], False, False),
        (1, False, [], False, True),
    ],
)
def test_how_a_run_ended(status, late, ranks, out_of_memory, failed):
    plain = {"out_of_memory": False, "error": None, "ended": "end", "devices": []}
    numbered = {number: {**plain, **rank} for number, rank in enumerate(ranks)}
    result = _fit_run.Result(status, late, numbered, {}, "", None)
    assert (result.out_of_memory, result.failed) == (out_of_memory, failed)


def words(**changed):
    """The text of an answer, with changes of its one device or of itself."""
    device = {
        "device": 0, "rank": None, "name": "NVIDIA L4", "fits": True,
        "allocated_peak_bytes": 3 * MIB, "reserved_peak_bytes": 4 * MIB,
        "outside_bytes": 6 * MIB, "total_bytes": 10 * MIB, "capacity_bytes": 16 * MIB,
        "headroom_bytes": 6 * MIB, "allocated_peak_range_bytes": [3 * MIB, 3 * MIB],
        "reserved_peak_range_bytes": [4 * MIB, 4 * MIB],
        "settings": None, "retries": 0, "ooms": 0, "by_category": {"gradient": 3 * MIB},
        "by_line": [],
    }  # fmt: skip
    answer = {
        "fits": True, "program": "train\x1b.py", "gpu": "l4", "torch": "2.11.0",
        "out_of_memory": None, "ended": "stopped", "steps": 12, "steps_after_peak": 10,
        "notes": [], "world": None, "vary": None,
    }  # fmt: skip
    for part in device, answer:
        part.update((key, value) for key, value in changed.items() if key in part)
    return _fit_text.text({**answer, "devices": [device]})


def test_words_of_what_fits():
    text = words()
    assert text.startswith(
        "train\\x1b.py fits on an NVIDIA L4 with 16.0 MiB: it takes 10.0 MiB and leaves "
        "6.00 MiB.\n"
    )
    assert "    3.00 MiB  100.0 %  gradient\n" in text
    assert "ended the program after 12 steps of its optimizer; no peak rose in the last 10." in text
    assert "driver placement" not in text and "PYTORCH" not in text
    assert "Reserved: 4.00 MiB to 5.00 MiB, depending on driver placement.\n" in words(
        reserved_peak_range_bytes=[4 * MIB, 5 * MIB]
    )
    estimated = words(
        allocated_peak_range_bytes=[2 * MIB, 3 * MIB],
        reserved_peak_range_bytes=[4 * MIB, 5 * MIB],
    )
    assert "Allocated: 2.00 MiB to 3.00 MiB, depending on what cuDNN takes" in estimated
    assert "driver placement, and on what cuDNN takes for convolutions.\n" in estimated
    assert "cuda:0 was full once; torch freed its cache" in words(retries=1)
    assert "ran out of memory 2 times, and the program went on" in words(ooms=2)
    assert "ran to its end, with 1 step of its optimizer." in words(ended="end", steps=1)
    assert "The time limit ended the program after 12 steps" in words(ended="time")


def test_words_of_what_does_not_fit():
    oom = {
        "device": 0, "rank": None, "file": "a\x1b.py", "line": 7, "function": "step",
        "reason": "", "requested_bytes": 2 * MIB, "error": "OutOfMemoryError: full",
    }  # fmt: skip
    settings = {
        "conf": "expandable_segments:True", "reserved_peak_bytes": 3 * MIB,
        "saving_bytes": MIB, "fits": True,
    }  # fmt: skip
    text = words(
        fits=False, headroom_bytes=-2 * MIB, capacity_bytes=8 * MIB, out_of_memory=oom,
        settings=settings,
    )  # fmt: skip
    assert "does not fit on an NVIDIA L4 with 8.00 MiB: it takes 10.0 MiB, 2.00 MiB " in text
    assert "Memory ran out in a\\x1b.py:7 step, which asked for 2.00 MiB." in text
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    oom.update(file="", rank=1, requested_bytes=None, reason="outside torch's allocator")
    assert (
        "Memory ran out of rank 1 outside torch's allocator: OutOfMemoryError: full"
        in words(fits=False, out_of_memory=oom)
    )


def test_what_was_not_measured_says_so():
    said = "outside torch was measured on an NVIDIA H200 with torch 2.11; here it may be"
    assert said in words(torch="2.11.0")
    assert said in words(name="NVIDIA H200", torch="2.15.0")
    assert said not in words(name="NVIDIA H200", torch="2.11.0")


def test_settings_that_save_little_are_not_said():
    little = {"conf": "x:1", "reserved_peak_bytes": 1, "saving_bytes": 9, "fits": True}
    assert "x:1" not in words(settings=little)
    assert "x:1" in words(settings={**little, "saving_bytes": MIB})


# --- Values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, name, put",
    [
        (["a", "--b={n}", "{n}x{n}"], "n", ["a", "--b=7", "7x7"]),
        (["a", "--n", "3", "c"], "n", ["a", "--n", "7", "c"]),
        (["a", "--batch-size", "3"], "batch_size", ["a", "--batch-size", "7"]),
        (["a", "--batch_size=3"], "batch-size", ["a", "--batch_size=7"]),
        (["a", "data.n=3"], "data.n", ["a", "data.n=7"]),
        # The last one counts, as for argparse.
        (["a", "--n=1", "--n", "2"], "n", ["a", "--n=1", "--n", "7"]),
        (["--n", "a", "--n", "2"], "n", ["--n", "a", "--n", "7"]),
    ],
)
def test_a_value_takes_its_place_in_the_arguments(words, name, put):
    assert vary.put(words, name, 7) == (put, {})


def test_a_name_in_capitals_is_a_variable():
    assert vary.put(["a"], "BATCH", 7) == (["a"], {"BATCH": "7"})


@pytest.mark.parametrize("words", [["a"], ["a", "--other", "1"], ["a", "--n"]])
def test_a_value_without_a_place(words):
    with pytest.raises(memlab.Error, match="no place for n: write {n}"):
        vary.put(words, "n", 7)


def test_a_range():
    assert vary.parse("batch_size=1..64") == vary.Vary("batch_size", 1, 64)
    for wrong in ("batch_size", "b=0..3", "b=4..3", "b=1-3", "=1..3", "b=1..3..4"):
        with pytest.raises(ValueError, match="write for example batch_size=1..64"):
            vary.parse(wrong)


@pytest.mark.parametrize("lowest, highest", [(1, 1), (1, 64), (3, 50), (5, 6)])
def test_the_largest_value_that_fits(lowest, highest):
    for limit in range(lowest - 1, highest + 3):
        tried = []

        def fits(value, limit=limit, tried=tried):
            tried.append(value)
            return value <= limit

        found = vary.largest_that(fits, range(lowest, highest + 1))
        assert found == (min(limit, highest) if limit >= lowest else None)
        # Doubling, then halving; none above twice what fits.
        assert max(tried) <= max(lowest, 2 * limit)
        assert len(set(tried)) == len(tried) <= 2 * highest.bit_length()


class Tries:
    """A program that fits up to a value, with peaks of its own, and fails from another."""

    def __init__(self, limit, peak=lambda value: value, fails_from=99):
        self.limit, self.peak, self.told = limit, peak, []
        self.fails_from = fails_from
        self.tell = self.tell_run = self.told.append

    def try_out(self, command, variables):
        value = int(variables["N"])
        if value >= self.fails_from:
            raise memlab.Error(f"a.py failed of {value}")
        keys = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")
        answer = {
            "fits": value <= self.limit,
            "devices": [dict.fromkeys(keys, self.peak(value)), dict.fromkeys(keys, 1)],
        }
        return answer, None

    def complete(self, answer, run, command, variables):
        return answer


def test_the_lowest_value_with_which_the_program_fails():
    with pytest.raises(memlab.Error, match="with N=2 a.py failed of 2"):
        searched(Tries(5, fails_from=2), "N=2..9")


def test_a_later_value_with_which_the_program_fails_keeps_what_was_found():
    """As a loader of 5 samples that gives no batch of 6, or a timeout."""
    tries = Tries(9, fails_from=6)
    found = searched(tries, "N=2..9")
    check(found, _answers.FitVary)
    assert found["largest"] == 5
    assert [(row["value"], row["total_bytes"], row["error"]) for row in found["tried"]] == [
        (2, 2, None), (4, 4, None), (5, 5, None),
        (6, None, "a.py failed of 6"), (8, None, "a.py failed of 8"),
    ]  # fmt: skip
    assert found["monotonic"]
    text = words(vary=found)
    assert "py with N=5 fits on an NVIDIA L4" in text
    assert "\n         6  failed, see below\n" in text
    assert "\nThe largest that fits is 5.\n" in text
    assert (
        "With N=6 the program failed for another reason than memory: a.py failed of 6\n"
        in text
    )
    assert "failed of 8" not in text


def searched(tries, text):
    words = [str(PROGRAM)]
    return vary.search(tries, words, vary.parse(text))["vary"]


def test_a_search_says_what_it_tried():
    tries = Tries(5)
    found = searched(tries, "N=2..9")
    assert tries.told == [f"trying N={value}" for value in (2, 4, 8, 6, 5)]
    check(found, _answers.FitVary)
    assert (found["largest"], found["lowest"], found["highest"]) == (5, 2, 9)
    assert [(row["value"], row["total_bytes"]) for row in found["tried"]] == [
        (2, 2), (4, 4), (5, 5), (6, None), (8, None)
    ]  # fmt: skip
    assert found["monotonic"]


def test_a_search_that_takes_less_for_more_says_so():
    found = searched(Tries(9, {1: 10, 2: 30, 4: 20, 8: 40, 9: 50}.get), "N=1..9")
    assert found["largest"] == 9
    assert not found["monotonic"]


def test_a_search_in_which_nothing_fits():
    found = searched(Tries(1), "N=2..9")
    assert found["largest"] is None
    assert [row["value"] for row in found["tried"]] == [2]


# --- Programs ------------------------------------------------------------------------


def fit_json(capsys, *words):
    """(exit status, answer) of `memlab fit --json WORDS`."""
    status = main.main(["fit", "--json", *map(str, words)])
    answer = json.loads(capsys.readouterr().out)
    check(answer, _answers.FitAnswer)
    return status, answer


@needs_torch
def test_a_program_without_an_end_fits(capsys, monkeypatch):
    # Of this machine, not of the one that is asked about.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    status, answer = fit_json(capsys, "--gpu", "l4", "python", PROGRAM)
    assert status == 0
    assert answer["fits"]
    [device] = answer["devices"]
    total = memlab.phantom.gpus()["l4"].total_bytes
    assert device["allocated_peak_bytes"] == ALLOCATED
    assert device["reserved_peak_bytes"] == RESERVED
    assert device["outside_bytes"] == CONTEXT
    assert device["total_bytes"] == RESERVED + CONTEXT
    assert device["capacity_bytes"] == total
    assert device["headroom_bytes"] == total - RESERVED - CONTEXT
    assert device["by_category"]["parameter"] == 64 * MIB
    # The peak of the first step, and ten more.
    assert (answer["ended"], answer["steps"], answer["steps_after_peak"]) == (
        "stopped", 11, 10
    )  # fmt: skip
    assert answer["out_of_memory"] is None


@needs_torch
def test_a_program_that_does_not_fit(capsys, monkeypatch):
    # Two of Adam's are not to be had.
    memory = CONTEXT + 400 * MIB
    # A number of its own, as clusters give them.
    monkeypatch.setenv("RANK", "3")
    status, answer = fit_json(capsys, "--memory", memory, PROGRAM, "end")
    assert status == 3
    assert not answer["fits"]
    oom = answer["out_of_memory"]
    assert (oom["file"], oom["function"]) == (str(PROGRAM), "step")
    assert PROGRAM.read_text().splitlines()[oom["line"] - 1].strip() == "optimizer.step()"
    assert oom["requested_bytes"] == 64 * MIB
    # Of a run without a limit, to its end.
    assert (answer["ended"], answer["steps"]) == ("end", 2)
    [device] = answer["devices"]
    assert not device["fits"]
    assert device["total_bytes"] == RESERVED + CONTEXT
    assert device["headroom_bytes"] == memory - RESERVED - CONTEXT == -86 * MIB


@needs_torch
def test_a_program_that_fails_by_itself(capsys, monkeypatch):
    monkeypatch.setenv("BATCH", "1")
    assert main.main(["fit", str(PROGRAM), "fail"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    why = "status 1 by ValueError: a fault of its own, on the phantom device, where values"
    assert f"fit_steps.py ended with {why}" in said.err
    assert "are not real; it printed last:\ntraining\nTrace" in said.err


@needs_torch
def test_a_program_that_fails_after_steps_is_answered_from_these(capsys):
    status, answer = fit_json(capsys, PROGRAM, "fail_late")
    assert status == 0
    assert (answer["ended"], answer["steps"], answer["fits"]) == ("failed", 2, True)
    [device] = answer["devices"]
    assert device["total_bytes"] == RESERVED + CONTEXT
    [failed, read] = answer["notes"]
    assert failed.startswith("the program failed by ValueError: a fault of its own: on the")
    line = PROGRAM.read_text().splitlines().index("            print(weight.mean().item())")
    assert read.startswith("the program read 1 value that was made up")
    assert read.endswith(f"fit_steps.py:{line + 1} (1)")


@needs_torch
def test_a_program_that_leaves_no_time(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os, torch; torch.ones(1, device='cuda'); os._exit(0)")
    with pytest.raises(memlab.Error, match="train.py ended without a report"):
        memlab.fit(script)


@needs_torch
def test_a_program_that_comes_to_no_step_in_time():
    with pytest.raises(memlab.Error, match="no optimizer step within 0.1 s"):
        memlab.fit(PROGRAM, timeout=0.1)


def on_an_h200(name, conf=""):
    """torch's peaks of a program of bench/fit_programs.py on an H200."""
    for path in (ROOT / "bench" / "results").glob("fit_h200_*.jsonl"):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if (line["name"], line["conf"]) == (name, conf):
                stats = line["stats"]
                return tuple(
                    stats[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved")
                )
    raise LookupError(name)


@needs_torch
@pytest.mark.h200
@pytest.mark.parametrize("name", ["mlp_cuda_graph", "conv3d"])
def test_as_much_as_on_an_h200(name, monkeypatch):
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    [device] = memlab.fit(ROOT / "bench" / "fit_programs.py", [name])["devices"]
    found = device["allocated_peak_bytes"], device["reserved_peak_bytes"]
    assert found == on_an_h200(name)


@needs_torch
@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, package, steps",
    [
        ("fit_trainer.py", "transformers", 12),
        ("fit_lightning.py", "lightning", 12),
        ("fit_compiled.py", "triton", 11),
    ],
)
def test_programs_of_others_loops(name, package, steps):
    if not amount("FIT", 0):
        pytest.skip("some ten seconds each: in make test-nightly")
    pytest.importorskip(package)
    answer = memlab.fit(PROGRAM.parent / name)
    assert answer["fits"]
    assert (answer["ended"], answer["steps"]) == ("stopped", steps)


@needs_torch
@pytest.mark.slow
def test_ranks_that_torchrun_starts(capsys, tmp_path, monkeypatch):
    """Rank 1 has a larger batch, and not before it has settled too are both ended."""
    script = tmp_path / "ranks.py"
    script.write_text("""
import os, runpy, torch
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
os.environ["BATCH"] = str(100 * (rank + 1))
runpy.run_path(os.environ["PROGRAM"])
""")
    monkeypatch.setenv("PROGRAM", str(PROGRAM))
    # As the console script of the same name.
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(
        f"#!{sys.executable}\nfrom torch.distributed.run import main\nmain()\n"
    )
    torchrun.chmod(0o700)
    status, answer = fit_json(capsys, torchrun, "--nproc-per-node", "2", script)
    assert status == 0
    first, second = answer["devices"]
    assert (first["rank"], first["device"], second["rank"], second["device"]) == (
        0, 0, 1, 1
    )  # fmt: skip
    assert first["allocated_peak_bytes"] == ALLOCATED
    assert second["allocated_peak_bytes"] == ALLOCATED + 100 * MIB
    assert first["total_bytes"] == RESERVED + CONTEXT
    assert answer["ended"] == "stopped"


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "no program given"),
        (["--gpu", "abacus", "a.py"], "unknown GPU 'abacus'"),
        (["--vary", "n=3", "a.py"], "write for example batch_size=1..64"),
        (["--memory", "much", "a.py"], "not a memory size"),
        (["--steps", "0", "a.py"], "not a whole number of at least 1"),
        (["--timeout", "nan", "a.py"], "not a number of seconds"),
    ],
)
def test_wrong_usage(words, said, capsys):
    with pytest.raises(SystemExit) as exit:
        main.main(["fit", *words])
    assert exit.value.code == 2
    assert said in capsys.readouterr().err
