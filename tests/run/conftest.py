"""`memlab lines` and `memlab run` of programs that a test writes."""

import os
import subprocess
import sys

import pytest
from cuda_here import why_phantoms
from lines_programs import MEMLAB
from run_folders import HEAD, ROOT
from warm import run as run_warm


@pytest.fixture
def write(tmp_path):
    """A function that writes modules of a program."""

    def write(parts=None, **modules):
        for name, text in {**(parts or {}), **modules}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")

    return write


@pytest.fixture
def lines(tmp_path, torch):
    """A function that runs `memlab lines` in the program's folder; VARIABLES are those of
    the environment that matter to memlab itself."""

    def run(*args, env=None, **variables):
        env = {**os.environ, **(env or {})}
        program = MEMLAB.format(variables=variables)
        return run_warm(program, "lines", *args, env=env, cwd=tmp_path)

    return run


@pytest.fixture
def run(tmp_path, device_environment):
    """A function that runs `memlab run` of the source of a program, with two GPUs: forked
    of a process that has imported torch, or by the command in a new one."""

    def new(words, env, stdout):
        return subprocess.run(
            [sys.executable, "-m", "memlab", "run", "--phantom=auto", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "MEMLAB_PHANTOM_DEVICES": "2", **env},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )

    def run(source, *args, status=0, env=None, forked=True, stdout=subprocess.PIPE):
        if why := why_phantoms(env or ()):
            pytest.skip(why)
        (tmp_path / "program.py").write_text(HEAD + source)
        words, env = [*args, "program.py"], env or {}
        if forked and stdout == subprocess.PIPE:
            two = {**device_environment, "MEMLAB_PHANTOM_DEVICES": "2"}
            program = MEMLAB.format(variables=env)
            done = run_warm(program, "run", *words, env=two, cwd=tmp_path)
        else:
            done = new(words, env, stdout)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done

    return run
