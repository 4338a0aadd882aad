"""memlab fit --cluster: tries on a real cluster of Ray, of two machines that are processes
here, each with a worker.  `make test-trainers` has Ray; elsewhere these tests are skipped.
"""

import collections
import json
import os
import signal
import subprocess
import types
from pathlib import Path

import pytest
from on_phantom import needs_torch

import memlab
from memlab._cli import main
from memlab._fit import cluster, sweep

MIB = 1 << 20
# Notes its batch when it begins and when it is done.  Of each batch in LOST the first run
# kills the worker that waits for it.
PROGRAM = """
import argparse, os, signal, torch

def note(text):
    with open("runs", "a") as file:
        file.write(f"{text} {batch}\\n")

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--lost", type=lambda text: list(map(int, text.split(","))))
options = parser.parse_args()
batch = options.batch
note("begins")
if batch in options.lost and open("runs").read().split("\\n").count(f"begins {batch}") == 1:
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
weight = torch.nn.Parameter(torch.empty(1 << 18, device="cuda"))
optimizer = torch.optim.SGD([weight])
inputs = torch.empty(batch << 18, device="cuda")
weight.sum().backward()
optimizer.step()
note("ends")
"""


@pytest.fixture
def ray(monkeypatch, tmp_path):
    found = pytest.importorskip(
        "ray", reason="Ray is not installed (make test-trainers has it)"
    )
    monkeypatch.chdir(tmp_path)
    # Where its workers look for memlab.
    root = str(Path(memlab.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    yield found
    found.shutdown()


@pytest.fixture
def address(ray):
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    yield made.address
    made.shutdown()


def runs(what):
    lines = Path("runs").read_text().splitlines()
    return collections.Counter(
        int(batch) for kind, batch in map(str.split, lines) if kind == what
    )


@needs_torch
@pytest.mark.slow
def test_a_worker_killed_in_the_midst_loses_nothing(address, capsys):
    """Of two GPUs each searches 1 to 4; the runs of a batch of 2 were lost once each."""
    Path("train.py").write_text(PROGRAM)
    words = ["fit", "--cluster", address, "--gpu", "t4,l4", "--vary", "batch=1..4"]
    words += ["--answers", "done", "--json", "train.py", "--batch", "1", "--lost", "2"]
    assert main.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(row["gpu"], row["largest"]) for row in answer["rows"]] == [("t4", 4), ("l4", 4)]
    # A weight of a MiB, its gradient, the inputs, and a block each for a sum and its gradient.
    assert {row["allocated_peak_bytes"] for row in answer["rows"]} == {6 * MIB + 2 * 512}
    assert (answer["tried"], answer["reused"]) == (6, 0)
    # Once more than twice is the run that was lost; none ended more than once for each GPU.
    assert runs("begins") == {1: 2, 2: 3, 4: 2}
    assert runs("ends") == {1: 2, 2: 2, 4: 2}
    assert len(Path("done").read_text().splitlines()) == 6
    assert main.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["tried"], answer["reused"]) == (0, 6)



def test_a_try_that_no_worker_survives_fails_alone(address, monkeypatch):
    """As where the machine has too little memory for it: the others are tried."""
    monkeypatch.setattr(cluster, "_RETRIES", 1)
    monkeypatch.setattr(sweep, "try_out", _ends_worker_of("4"))
    with cluster.executor(address) as executor:
        answer = sweep.sweep_of(
            ["a.py", "--tp", "1"], ["l4"], ["tp=2,4"], None, None, 900, executor=executor
        )
    first, second = answer["rows"]
    assert (first["fits"], first["error"]) == (True, None)
    assert not second["fits"]
    assert second["error"].startswith("its worker was lost 2 times: ")


def _ends_worker_of(tp):
    """A try that fits, except with TP; a closure, which travels to the worker whole."""

    def try_out(question):
        if question[0][2] == tp:
            os.kill(os.getpid(), signal.SIGKILL)
        keys = ("allocated_peak_bytes", "reserved_peak_bytes", "total_bytes")
        return {"fits": True, **dict.fromkeys(keys, 1), "rank": None, "error": None}

    return try_out


def _waiting():
    """Waits as for a program; tells of its begin by a pipe, of its end by a file."""

    def wait():
        program = subprocess.Popen(["sleep", "1000"])
        Path("began").write_text("")
        try:
            program.wait(900)
        finally:
            program.kill()
            Path("ended").touch()

    return wait


def test_what_is_under_way_ends_with_the_sweep(address):
    os.mkfifo("began")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        with cluster.executor(address) as executor:
            # Not Ray's, by which this process would end at once.
            assert signal.getsignal(signal.SIGTERM) is before
            executor.submit(_waiting())
            Path("began").read_text()
            raise KeyboardInterrupt
    assert Path("ended").exists()


def test_a_folder_that_a_machine_lacks_is_told(address, tmp_path, monkeypatch):
    with cluster.executor(address) as executor:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        (tmp_path / "here").rename(tmp_path / "there")
        monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path / "here"))
        with pytest.raises(memlab.Error, match="here: No such file .*: share the folder"):
            executor.submit(abs, -1).result()


def test_an_address_without_a_cluster_is_told(ray):
    with pytest.raises(memlab.Error, match="no Ray cluster at auto: .* ray start --head"):
        with cluster.executor("auto"):
            pass


def test_a_client_that_gets_no_answer_is_told_of_the_token(monkeypatch):
    """Ray itself is not needed: its client's error is what it says after 30 seconds."""

    def init(address, **options):
        raise ConnectionError("ray client connection timeout")

    monkeypatch.setattr(cluster, "package", lambda *names: types.SimpleNamespace(init=init))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(memlab.Error, match="connection timeout: if the cluster asks for a token"):
        with cluster.executor("ray://there:10001"):
            pass
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(memlab.Error, match="timeout: on its first .* --ray-client-server-port"):
        with cluster.executor("ray://there:10001"):
            pass
