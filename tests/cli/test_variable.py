"""MEMLAB=1: programs and launchers are recorded with unchanged command lines.

Sizes are whole MiB of one tensor, so a peak says which process it is of.
"""

import os
import re
import subprocess
import sys

import pytest
from on_phantom import installed
from run_folders import HEAD, names, peaks, results

from memlab._cli import variable
from memlab._errors import Error

pytestmark = pytest.mark.cuda


@pytest.fixture
def run(tmp_path, device_environment):
    """A function that runs WORDS with the variable, on two GPUs; the program is SOURCE."""
    path = installed(tmp_path)

    def run(source, *words, memlab="1", status=0):
        (tmp_path / "program.py").write_text(HEAD + source)
        done = subprocess.run(
            [sys.executable, *(words or ("program.py",))],
            env={
                **os.environ,
                **device_environment,
                "MEMLAB_PHANTOM_DEVICES": "2",
                "MEMLAB_PHANTOM_QUIET": "1",
                "PYTHONPATH": path,
                "MEMLAB": memlab,
            },
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    return run


def shown(folder):
    """The names of the files in FOLDER that are for people."""
    return {name for name in names(folder) if not name.startswith(".")}


def of(*numbers):
    """Those of processes with these NUMBERS."""
    return results(*numbers) - {".rank0.lock"}


def told(done):
    """The lines of memlab's on stderr that name a peak or a process."""
    return re.findall(r"^(?:Peak on|memlab: process|  rank) .*", done.stderr, re.M)


def test_a_program_is_recorded_as_by_memlab_run(run, tmp_path):
    done = run("held = hold(64)\n")
    assert done.stdout == "HELD 64\n"
    out = tmp_path / "memlab_out"
    assert shown(out) == of(0)
    assert peaks(out) == {0: 64}
    assert told(done) == [told(done)[0]]
    assert told(done)[0].startswith("Peak on cuda:0: 64.0 MiB allocated")


def test_a_value_of_0_asks_for_nothing(run, tmp_path):
    done = run("held = hold(64)\nprint('memlab' in sys.modules)\n", memlab="0")
    assert done.stdout == "HELD 64\nFalse\n" and not told(done)
    assert not (tmp_path / "memlab_out").exists()


def test_the_ranks_of_a_launcher_are_recorded_and_told_once(run, tmp_path):
    pytest.importorskip("accelerate")
    done = run(
        """
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
held = hold(64 * (rank + 1), rank)
""",
        *("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
        *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
        "program.py",
    )
    out = tmp_path / "memlab_out"
    assert shown(out) == of(0, 1)
    assert peaks(out) == {0: 64, 1: 128}
    lines = told(done)
    assert len(lines) == 2, lines
    assert lines[0].startswith("Peak on rank 1 (cuda:1): 128 MiB allocated")
    assert lines[1].startswith("  rank 0 (cuda:0): 64.0 MiB allocated")


def test_processes_without_a_rank_take_free_numbers(run, tmp_path):
    """One that is forked and one that is spawned; the parent uses no GPU."""
    done = run("""
def work(mib):
    held = hold(mib)
    together.wait()

together = None

def begin(barrier, mib):
    global together
    together = barrier
    work(mib)

if __name__ == "__main__":
    barrier = multiprocessing.get_context("spawn").Barrier(2)
    some = [
        multiprocessing.get_context(how).Process(target=begin, args=(barrier, mib))
        for how, mib in (("fork", 8), ("spawn", 16))
    ]
    for one in some:
        one.start()
    for one in some:
        one.join()
""")
    out = tmp_path / "memlab_out"
    assert shown(out) == of(0, 1)
    assert sorted(peaks(out).values()) == [8, 16]
    assert len(told(done)) == 2 and all("files in memlab_out" in t for t in told(done))


def test_the_value_may_be_options(run, tmp_path):
    done = run("held = hold(8)\n", memlab="--out there --quiet")
    assert shown(tmp_path / "there") == of(0)
    assert not told(done)


@pytest.mark.parametrize(
    "value, said",
    [
        ("--ou there", "unrecognized arguments: --ou there"),
        ("--max-entries x", "'x' is not a whole number"),
        ("yes", "unrecognized arguments: yes"),
    ],
)
def test_a_value_that_is_none_is_named(value, said):
    with pytest.raises(Error, match="MEMLAB must be 1, or options of memlab run: .*" + said):
        variable._options(value)


def test_what_cannot_be_recorded_is_said_and_the_program_runs(run):
    done = run("held = hold(8)\n", memlab="--out program.py")
    assert done.stdout == "HELD 8\n"
    assert len(told(done)) == 1 and "cannot write results to 'program.py'" in told(done)[0]


def test_a_command_of_memlabs_records_once(run, tmp_path):
    done = run("held = hold(8)\n", "-m", "memlab", "run", "program.py")
    assert shown(tmp_path / "memlab_out") == of(0)
    assert len(told(done)) == 1


def test_a_terminated_program_leaves_its_recording(run, tmp_path):
    run("held = hold(8)\nos.kill(os.getpid(), signal.SIGTERM)\n", status=-15)
    assert shown(tmp_path / "memlab_out") == of(0)
    assert peaks(tmp_path / "memlab_out") == {0: 8}


def test_made_up_values_that_the_program_read_are_told(run):
    from cuda_here import has_gpu

    if has_gpu():
        pytest.skip("a GPU computes all values")
    done = run("torch.ones(1 << 20, device='cuda').sum().item()\n")
    [said] = re.findall(r"the program read .*", " ".join(done.stderr.split()))
    assert said.startswith("the program read 1 value that was made up")
    line = HEAD.count("\n") + 1
    assert f"program.py:{line} (1)" in said
