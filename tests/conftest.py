"""What the tests share: programs run on a CUDA device.

A test marked `cuda` needs a CUDA build of torch; it runs on a real GPU where there is
one and on the phantom device elsewhere.  Nothing here initialises CUDA in the process
of the tests: programs that use it run in processes of their own.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_here import has_gpu, why_no_cuda, why_no_torch, why_not_measured, why_phantoms
from viewer_pages import chromium, open_page, show  # noqa: F401
from warm import LATE
from warm import end as end_parents
from warm import run as run_warm

ROOT = Path(__file__).resolve().parent.parent

# Programs started by a test must see this checkout's memlab, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# torch.compile compiles within the program: the processes that stand by for it each import torch,
# which takes a third of a small model's time.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

# Several processes of tests share the cores, and threads of OpenMP that wait for one another's
# small parts take a tenth more of them.
os.environ["OMP_NUM_THREADS"] = "1"

# A shell that starts its job in the background has it ignore Ctrl-C, and so would every
# program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish():
    end_parents()


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and why_no_cuda():
        pytest.skip(why_no_cuda())
    if item.get_closest_marker("h200") and why_not_measured():
        pytest.skip(why_not_measured())


@pytest.fixture
def torch():
    """The torch module; a test that takes it is skipped where there is none."""
    if why_no_torch():
        pytest.skip(why_no_torch())
    import torch

    return torch


@pytest.fixture
def script():
    """The scripted source, empty before and after."""
    from memlab import _core

    source = _core.Script()
    source.reset()
    yield source
    source.reset()


@pytest.fixture(scope="session")
def device_environment():
    """The environment in which a program finds a CUDA device, real or phantom."""
    if why_no_cuda():
        pytest.skip(why_no_cuda())
    if has_gpu():
        return dict(os.environ)
    from memlab import phantom

    return {**os.environ, **phantom.environment()}


def run_cold(program, *args, env, cwd, timeout):
    """Runs the file PROGRAM in a new process."""
    return subprocess.run(
        [sys.executable, str(program), *map(str, args)],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture
def phantom_run(device_environment, tmp_path):
    """A function that runs Python source or a script file on a CUDA device.

    phantom_run(source_or_path, *args, check=True, env={}, timeout=300, warm=None)
    returns the subprocess.CompletedProcess with text output; with CHECK a non-zero exit
    status fails the test and shows what the program printed.

    The program is forked of a process that has imported torch (warm.py says what that
    changes), unless WARM is false or it needs an environment of its own.
    """

    def run(program, *args, check=True, env=None, timeout=300, warm=None):
        if why := why_phantoms(env or ()):
            pytest.skip(why)
        script = program
        if not isinstance(program, Path):
            script = tmp_path / "program.py"
            script.write_text(program)
        start = run_warm if warm or (warm is None and LATE.issuperset(env or ())) else run_cold
        environment = {**device_environment, **(env or {})}
        done = start(script, *args, env=environment, cwd=tmp_path, timeout=timeout)
        if check and done.returncode != 0:
            pytest.fail(
                f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}",
                pytrace=False,
            )
        return done

    return run
