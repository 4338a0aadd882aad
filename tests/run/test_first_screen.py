"""The first screen: at most 24 lines of 80 columns with the peak, the verdict and what to
change, from `memlab run` on stderr and from `memlab report`."""

import json
import os
import re
import subprocess
import sys

import pytest
from run_folders import ROOT

pytestmark = pytest.mark.cuda

MIB = 1 << 20


def report(folder, *args, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "report", *map(str, args)],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=100,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def screen_of(done):
    """What `memlab run` said behind the program's end."""
    text = done.stderr[done.stderr.index("\nPeak on") + 1 :]
    lines = text.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80, text
    return text


def verdict(folder, *args):
    answer = json.loads(report(folder, "memlab_out/rank0.mlab", "--json", *args).stdout)
    return [device["verdict"] for device in answer["devices"]]


# A training of 16 MiB of weights, each evaluation of which makes 4 blocks of 512 MiB at once.
EVALUATES = """
model = torch.nn.Linear(2048, 2048, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters())

class Looks(torch.nn.Module):
    def forward(self, x):
        a = model(x); b = model(a); c = model(b)
        return model(c)

looks = Looks()
for _ in range(3):
    model(torch.ones(64, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    looks(torch.ones(65536, 2048, device="cuda"))
    torch.ones(1, device="cuda")
"""


def test_a_peak_in_an_evaluation(run, tmp_path):
    text = screen_of(run(EVALUATES))
    assert "in an evaluation, at program.py:" in text
    assert "The peak is in an evaluation, not in the training" in text.replace("\n    ", " ")
    assert "1. Evaluate in smaller batches: saves " in text
    found, _ = verdict(tmp_path)
    kinds = [finding["kind"] for finding in found["findings"]]
    assert kinds[:2] == ["peak_in_evaluation", "fits"]
    above = found["findings"][0]
    # All four results and what they are of: 5 blocks of 512 MiB; the workspace is in both.
    assert found["peak"]["stage"] == above["stage"] == "evaluation"
    assert above["bytes"] + above["of_bytes"] == found["peak"]["allocated_bytes"]
    assert above["bytes"] >= 4 * 64 * MIB
    # The change is one of the loop, not of the model's line at the peak.
    lines = (tmp_path / "program.py").read_text().splitlines()
    [loop] = [i for i, line in enumerate(lines, 1) if "looks(torch.ones(65536" in line]
    [change] = [item for item in found["changes"] if item["kind"] == "evaluation_batch"]
    assert change["code"].startswith(f"program.py:{loop}: DataLoader(..., batch_size=B // ")


@pytest.mark.parametrize("sizes", ["the same", "others"])
def test_an_evaluation_that_may_make_a_graph(run, sizes):
    """4 of the 5 blocks of 380 to 512 MiB are the model's results. Its variables hold them, too:
    no advice, as without a graph the peak is the same."""
    program = EVALUATES
    if sizes == "others":
        program = program.replace("(a)", "(a[:60000])").replace("(b)", "(b[:55000])")
        program = program.replace("(c)", "(c[:50000])")
    text = screen_of(run(program.replace("with torch.no_grad():", "if True:")))
    assert "in a forward pass, at program.py:" in text
    said = re.search(r"(\d\d\.\d) % is temporary in a forward pass. If no backward pass follows "
                     r"it, as in an evaluation: with torch.no_grad\(\).", text.replace("\n     ", ""))  # fmt: skip
    assert said and 75 < float(said[1]) < 80, text
    assert "1. Run the forward" not in text
    # Its program guards it.
    assert "torch.no_grad" not in screen_of(run(EVALUATES))


# 12 layers of which the fifth finds no room; the GPU is named in the test.
RUNS_OUT = """
layers = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, bias=False) for _ in range(12)])
layers.cuda()
x = torch.ones(32768, 4096, device="cuda")
layers(x).sum().backward()
"""


def test_out_of_memory_leads(run, tmp_path):
    """768 MiB of weights, 512 MiB for each activation: on 4 GiB the sixth has no room."""
    done = run(RUNS_OUT, status=1, env={"MEMLAB_PHANTOM_MEMORY": str(4 << 30)})
    text = screen_of(done)
    assert "Verdict: Out of memory in a forward pass of " in text
    assert "512 MiB were asked for" in text.replace("\n    ", " ")
    found, _ = verdict(tmp_path)
    first = found["findings"][0]
    assert first["kind"] == "out_of_memory" and first["stage"] == "forward"
    assert first["bytes"] == 512 * MIB and first["file"].endswith("program.py")
    assert not {"fits", "tight"} & {finding["kind"] for finding in found["findings"]}
    # As `memlab report` and its page say it at any time.
    said = report(tmp_path, "memlab_out/rank0.mlab").stdout
    same = text[text.index("Verdict") : text.index("\n\nFiles in")]
    assert said.startswith(text[: text.index("What it")]) and same in said
    # In the full report, too, it has 80 columns.
    assert same in (tmp_path / "memlab_out/report.txt").read_text()
    assert same in report(tmp_path, "memlab_out", "--full").stdout
    page = (tmp_path / "memlab_out/rank0.html").read_text()
    assert "Out of memory in a forward pass of " in page
    gate = report(tmp_path, "memlab_out", "--fail-on", "oom", status=3)
    assert gate.stderr == "memlab: cuda:0 ran out of memory\n"


def test_gates(run, tmp_path):
    run("hold(100)")
    assert report(tmp_path, "memlab_out", "--fail-over", "101MiB").stderr == ""
    gate = report(tmp_path, "memlab_out", "--fail-over", "99MiB", status=3)
    assert gate.stderr == "memlab: cuda:0 reserved 100 MiB, more than 99.0 MiB\n"
    # With any form of the answer, which is whole.
    gate = report(tmp_path, "memlab_out", "--fail-over", "99MiB", "--json", status=3)
    assert json.loads(gate.stdout)["devices"]
    assert "invalid choice" in report(
        tmp_path, "memlab_out", "--fail-on", "weather", status=2
    ).stderr


def test_a_quiet_run_says_nothing(run, tmp_path):
    done = run("hold(100)\nprint('PROGRAM')", "--quiet")
    assert done.stdout == "HELD 100\nPROGRAM\n"
    assert "memlab:" not in done.stderr.replace("memlab phantom:", "")
    assert "Peak" not in done.stderr
    text = (tmp_path / "memlab_out/report.txt").read_text()
    assert text.startswith("Peak on cuda:0: 100 MiB allocated")


# Tells when a progress line would begin and end, and whether the page is there by then.
WATCHES_PROGRESS = """
import os
from memlab._run import telling

class Seen:
    def __init__(self, what, stream):
        print("BEGIN", what, stream is None, os.path.exists("memlab_out/rank0.html"))
    def end(self):
        print("END", os.path.exists("memlab_out/rank0.html"))

telling.Progress = Seen
hold(100)
"""


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_writing_the_results_is_told_while_it_lasts(run, options):
    done = run(WATCHES_PROGRESS, *options)
    begin = f"BEGIN writing the results {bool(options)} False"
    assert done.stdout.splitlines()[-2:] == [begin, "END True"], done.stdout


def test_the_fuller_device_is_told_and_the_others_have_a_line(run, tmp_path):
    text = screen_of(run("a = hold(10, 0)\nb = hold(20, 1)"))
    assert text.startswith("Peak on cuda:1: 20.0 MiB allocated")
    assert "\n  cuda:0: 10.0 MiB allocated" in text
    full = report(tmp_path, "--full", "memlab_out").stdout
    assert "Peak on cuda:0: 10.0 MiB allocated (10485760 bytes)" in full
    assert "Peak on cuda:1: 20.0 MiB allocated (20971520 bytes)" in full


def test_a_device_that_nothing_was_allocated_on_has_no_line(run, tmp_path):
    text = screen_of(run("a = hold(10, 0)\ntorch.cuda.synchronize(1)"))
    for said in (text, report(tmp_path, "memlab_out").stdout):
        assert said.startswith("Peak on cuda:0: 10.0 MiB allocated")
        assert "cuda:1" not in said


def test_deep_modules_with_long_names_in_a_long_path(run, tmp_path):
    """48 layers, a name of 60 characters, a folder of 100: no line is longer, no path is
    broken within a word."""
    folder = "a_folder_whose_name_is_rather_long/" * 3
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "model.py").write_text("""
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a_projection_whose_name_goes_on_and_on_for_sixty_characters = (
            torch.nn.Linear(256, 256))

    def forward(self, x):
        return x + self.a_projection_whose_name_goes_on_and_on_for_sixty_characters(x).relu()
""")
    text = screen_of(run(f"""
sys.path.insert(0, {folder!r})
from model import Layer

model = torch.nn.Sequential(*[Layer() for _ in range(48)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(4096, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""))
    for line in text.splitlines():
        if "a_folder" in line:
            for word in line.split("/")[:-1]:
                assert word.endswith(("a_folder_whose_name_is_rather_long", " ")), text


def test_a_rank_that_never_ends_is_named(tmp_path, device_environment):
    """Rank 0 tells of both after ten seconds; rank 1 sleeps until it is killed."""
    (tmp_path / "program.py").write_text("""
import os
import signal
import torch

kept = torch.empty(10 << 20, dtype=torch.uint8, device="cuda")
if os.environ["RANK"] == "1":
    print("SLEEPS", flush=True)
    signal.pause()
else:
    input()
""")

    def start(rank):
        return subprocess.Popen(
            [sys.executable, "-m", "memlab", "run", "--phantom=auto", "program.py"],
            env={
                **os.environ, **device_environment, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2",
                "RANK": str(rank), "LOCAL_RANK": "0",
            },
            cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    sleeps, ends = start(1), start(0)
    try:
        assert sleeps.stdout.readline() == "SLEEPS\n"
        _, said = ends.communicate("\n", timeout=300)
        assert sleeps.poll() is None
    finally:
        sleeps.kill()
        ends.kill()
        sleeps.communicate()
    assert ends.returncode == 0
    assert "After 10 s of waiting, rank 1: not ended, told as it is so far." in said
    assert "10.0 MiB allocated" in said and "\n  Still being recorded: rank 1\n" in said
    # Of its own files alone.
    assert "Files in memlab_out: report.txt" in said
    done = report(tmp_path, "memlab_out")
    assert "\n  Ended by a signal or os._exit(): rank 1\n" in done.stdout


def test_of_a_recording_too_long_for_trials_explain_is_next(run, tmp_path):
    """70,000 blocks, one after the other, have more events than are tried at once."""
    done = run("""
kept = torch.empty(1 << 20, device="cuda")
for _ in range(70_000):
    torch.empty(8, device="cuda")
""")
    for said in (screen_of(done), report(tmp_path, "memlab_out").stdout):
        assert "Too long to try changes here: memlab explain does." in said
        assert "\nNext: memlab explain memlab_out\n" in said
    said = report(tmp_path, "memlab_out/rank0.mlab").stdout
    assert said.endswith(
        "\nNext: memlab explain memlab_out/rank0.mlab\n"
        "      memlab report --full memlab_out/rank0.mlab\n"
    )


def test_a_program_without_gpu_memory(run):
    said = run("print('hi')").stderr.splitlines()
    assert said[-5:-3] == [
        "No memory was allocated while recording.",
        "For memory on the CPU: memlab run --device cpu",
    ]
    assert max(map(len, said[-5:])) <= 80
