"""The command lines that record what a program starts with subprocess."""

import os
import shlex

import pytest

from memlab._run import commands as _commands

OWN = ["run", "--phantom"]
RUN = "memlab run --phantom"


@pytest.mark.parametrize(
    "command, line",
    [
        ("python train.py -x", f"python -m {RUN} train.py -x"),
        ("/usr/bin/python3.12 -u -W error train.py",
         f"/usr/bin/python3.12 -u -W error -m {RUN} train.py"),
        ("python -u -m package.train --lr 1", f"python -u -m {RUN} -m package.train --lr 1"),
        ("torchrun --nproc-per-node 2 train.py --lr 1",
         f"torchrun --nproc-per-node 2 -m {RUN} train.py --lr 1"),
        ("torchrun --nproc-per-node=2 -m package.train",
         f"torchrun --nproc-per-node=2 -m {RUN} -m package.train"),
        ("python -m torch.distributed.run --standalone train.py",
         f"python -m torch.distributed.run --standalone -m {RUN} train.py"),
        ("python /opt/bin/torchrun train.py", f"python /opt/bin/torchrun -m {RUN} train.py"),
        ("accelerate launch --num_processes 2 train.py",
         f"accelerate launch --num_processes 2 -m {RUN} train.py"),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json",
         f"deepspeed --num_gpus 2 --module {RUN} train.py --deepspeed ds.json"),
        # No line can.
        ("python -c 'import train'", ""),
        ("python", ""),
        # Nothing to record, or recorded already.
        ("git rev-parse HEAD", None),
        ("python -m memlab run train.py", None),
        ("torchrun -m memlab run train.py", None),
        ("python /x/torch/_inductor/compile_worker/__main__.py --workers=2", None),
        ("python /x/site-packages/cpuinfo/cpuinfo.py --json", None),
        ("", None),
    ],
)
def test_the_line_that_records(command, line):
    found = _commands.recording(shlex.split(command), OWN)
    assert (found if found is None else shlex.join(found)) == line


def test_what_is_told_of_several():
    """The launcher's own line where the program is one, else that of the first command."""
    commands = [["python", "-u", "train.py"], ["python", "-u", "train.py"]]
    assert _commands.note(commands, OWN, ["python", "main.py"]) == (
        "memlab: the program started 2 other Python processes, not recorded: "
        f"python -u train.py\nmemlab: to record: python -u -m {RUN} train.py"
    )
    launcher = ["python", "-m", "torch.distributed.run", "train.py"]
    assert _commands.note(commands, OWN, launcher).endswith(
        f"to record: python -m torch.distributed.run -m {RUN} train.py"
    )
    # As Lightning starts the ranks but the first.
    ranks = [["/usr/bin/python", "-u", os.path.abspath("main.py"), "--lr", "1"]] * 3
    assert _commands.note(ranks, OWN, ["python", "main.py", "--lr", "1"]).endswith(
        f"torchrun --nproc-per-node 4 -m {RUN} main.py --lr 1"
    )
    alone = _commands.note([["python", "-c", "pass"]], OWN, ["python", "main.py"])
    assert "another Python process, not recorded" in alone and "memlab run FILE" in alone
