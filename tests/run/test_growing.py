"""`memlab run` of programs whose memory grows: what it says, what its files keep."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LEAK = ROOT / "tests" / "programs" / "leaks" / "list_local.py"

pytestmark = pytest.mark.usefixtures("torch")


def command(*args, cwd, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "memlab", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def growing(path):
    [device] = json.loads(command("report", "--json", str(path), cwd=path.parent).stdout)[
        "devices"
    ]
    [line] = [line for line in device["growth"]["lines"] if line["certain"]]
    return line


def test_holder_is_kept_in_the_files(tmp_path):
    said = command("run", "--device", "cpu", "--out", "out", str(LEAK), cwd=tmp_path).stderr
    said = " ".join(said.split())
    assert "Verdict: Grows by 2.00 KiB a step since step 0: " in said
    assert "list_local.py:24 main, held by local `kept[...]` of main()" in said
    for name in ("rank0.mlab", "rank0.pickle"):
        line = growing(tmp_path / "out" / name)
        assert line["holder"].startswith("local `kept[...]` of main()")
    report = (tmp_path / "out" / "report.txt").read_text()
    assert "What grows by step" in report
    done = command("report", "out", "--fail-on", "leak", cwd=tmp_path, status=3)
    assert "Grows by 2.00 KiB a step" in " ".join(done.stderr.split())


def test_killed(tmp_path):
    """The line is there in any case; who holds it, where a look came before the end."""
    source = LEAK.read_text().replace("step(x)\n\n\nmain", "step(x)\n    os.kill(0, 9)\n\n\nmain")
    source = source.replace("import torch", "import os\n\nimport torch", 1)
    source = source.replace("os.kill(0, 9)", "os.kill(os.getpid(), 9)")
    program = tmp_path / "program.py"
    program.write_text(source)
    command(
        "run", "--device", "cpu", "--out", "out", str(program), cwd=tmp_path,
        status=-signal.SIGKILL,
    )
    line = growing(tmp_path / "out" / "rank0.mlab")
    assert line["file"] == str(program)
    assert line["holder"].startswith("local `kept[...]` of main()")


EPOCHS = """
import torch

class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.outputs = []

    def step(self):
        self.optimizer.zero_grad()
        self.model(torch.zeros(4, 8)).sum().backward()
        self.optimizer.step()

    def fit(self):
        for epoch in range(6):
            for _ in range(60):
                self.step()
            self.outputs.append(torch.zeros(4096))

def main():
    Trainer().fit()

main()
"""


def test_holder_of_what_each_epoch_leaves(tmp_path):
    """The list dies with the function, of which the last look therefore knows nothing."""
    program = tmp_path / "epochs.py"
    program.write_text(EPOCHS)
    command("run", "--device", "cpu", "--out", "out", str(program), cwd=tmp_path)
    line = growing(tmp_path / "out" / "rank0.mlab")
    assert (line["line"], line["steps"]) == (19, 5)
    name = "step" if sys.version_info < (3, 11) else "Trainer.step"
    assert line["holder"].startswith(f"`self.outputs[...]` in {name}()")


def test_a_cycle_is_broken_or_collected_not_emptied(tmp_path, device_environment):
    """explain writes what the verdict says: nobody holds the blocks, so nothing can be emptied."""
    source = (LEAK.parent / "cycle.py").read_text().replace("64", "512")
    source = source.replace("32))", "512)).cuda()").replace("randn(16, 512)", "randn(256, 512).cuda()")
    program = tmp_path / "program.py"
    program.write_text(source)
    command("run", "--phantom=auto", "--out", "out", str(program), cwd=tmp_path)
    out = tmp_path / "out" / "rank0.mlab"
    [device] = json.loads(command("explain", "--json", str(out), cwd=tmp_path).stdout)["devices"]
    [kept] = [item for item in device["advice"] if item["kind"] == "steps_kept"]
    assert kept["garbage"] and all(item is kept or not item["garbage"] for item in device["advice"])
    told = " ".join(command("explain", str(out), cwd=tmp_path).stdout.split())
    assert "by the steps before: only a reference cycle holds them." in told
    assert "Write: break the cycle, or call gc.collect() in each step" in told


def test_nobody_fails_on_a_program_that_settles(tmp_path):
    program = ROOT / "tests" / "programs" / "settles" / "warm_up.py"
    command("run", "--device", "cpu", "--out", "out", str(program), cwd=tmp_path)
    command("report", "out", "--fail-on", "leak", cwd=tmp_path)


def test_torchs_own_snapshot(tmp_path, device_environment):
    """The line alone, by backward passes: nothing else is known of it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "torch.cuda.memory._record_memory_history(max_entries=100000)\n"
        "model = torch.nn.Linear(64, 64).cuda()\n"
        "kept = []\n"
        "for _ in range(8):\n"
        "    x = torch.randn(16, 64, device='cuda')\n"
        "    kept.append(x.neg())\n"
        "    model(x).sum().backward()\n"
        "torch.cuda.memory._dump_snapshot('snapshot.pickle')\n"
    )
    command("phantom", sys.executable, str(program), cwd=tmp_path)
    line = growing(tmp_path / "snapshot.pickle")
    assert (line["line"], line["since_step"], line["holder"]) == (7, 0, "")
    said = command("explain", "snapshot.pickle", cwd=tmp_path).stdout
    assert "Grows by 4.00 KiB a step since step 0: program.py:7 <module>" in said
