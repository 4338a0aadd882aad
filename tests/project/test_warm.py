"""Programs forked of a process that has imported torch are told from new ones by nothing
that a test asks for."""

import os
import subprocess
import sys

import pytest
import warm
from cuda_here import has_gpu

pytestmark = pytest.mark.usefixtures("torch")

# torch imports ctypes, whose libffi may keep its own file open.
PROGRAM = """
import atexit, ctypes, json, os, sys, threading, time
print(json.dumps({
    "name": __name__, "file": globals().get("__file__"),
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "stdin": sys.stdin.read(),
    "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
    "warnings": sys.warnoptions, "buffered": not sys.stdout.line_buffering,
    "memlab": [name for name in sys.modules if name.startswith("memlab")],
    "main": vars(sys.modules["__main__"]) is globals(),
    "descriptors": os.listdir("/proc/self/fd"), "tasks": len(os.listdir("/proc/self/task")),
}))
atexit.register(print, "at exit")
threading.Thread(target=lambda: time.sleep(0.1) or print("joined")).start()
class Late:
    def __del__(self):
        os.write(1, b"finalised")
late = Late()
"""
ENDS = {
    "": 0,
    "sys.exit()": 0,
    "sys.exit(3)": 3,
    "sys.exit('what it says')": 1,
    "raise ValueError('why')": 1,
    "os._exit(4)": 4,
    "raise KeyboardInterrupt": -2,
    "os.kill(os.getpid(), 9)": -9,
    "os.abort()": -6,
}

def new(command, cwd):
    return subprocess.run(
        [sys.executable, "-W", "error:memlab", *command],
        env=dict(os.environ), cwd=cwd, stdin=subprocess.DEVNULL,
        capture_output=True, text=True,
    )  # fmt: skip


def errors(text):
    """The lines of TEXT without the frame that a forked program has outermost."""
    lines = text.splitlines()
    outer = [n for n, line in enumerate(lines) if f'File "{warm.__file__}"' in line]
    for number in reversed(outer):
        # Its text, which CPython 3.13 underlines.
        while number + 1 < len(lines) and lines[number + 1].startswith("    "):
            del lines[number + 1]
        del lines[number]
    return lines


def compare(program, command, cwd, status):
    forked = warm.run(program, "a", 1, cwd=cwd, options=("-W", "error:memlab"))
    alone = new([*command, "a", "1"], cwd)
    assert forked.returncode == alone.returncode == status
    assert forked.stdout == alone.stdout
    assert errors(forked.stderr) == errors(alone.stderr)


@pytest.mark.parametrize("end", ENDS)
def test_it_begins_and_ends_as_a_new_process_does(tmp_path, end):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + end)
    compare(script, [script], tmp_path, ENDS[end])


def test_so_does_a_program_that_is_no_file(tmp_path):
    compare(PROGRAM, ["-c", PROGRAM], tmp_path, 0)


@pytest.mark.cuda
def test_cuda_is_there_and_not_initialised(device_environment):
    done = warm.run(
        "import torch; print(torch.cuda.is_initialized(), torch.zeros(3, device='cuda'))",
        env=device_environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False tensor([0., 0., 0.], device='cuda:0')\n"


@pytest.mark.cuda
@pytest.mark.skipif(has_gpu(), reason="the devices here are not the phantom's")
def test_programs_of_one_parent_have_devices_of_their_own(device_environment):
    parents = set()
    for devices, gpu in ((3, "t4"), (2, "l4")):
        own = {"MEMLAB_PHANTOM_DEVICES": str(devices), "MEMLAB_PHANTOM_GPU": gpu}
        done = warm.run(
            "import os, torch\n"
            "print(os.getppid(), torch.cuda.device_count(), torch.cuda.get_device_name())",
            env={**device_environment, **own},
        )
        parent, count, name = done.stdout.split(maxsplit=2)
        parents.add(parent)
        assert int(count) == devices and gpu.upper() in name
    assert len(parents) == 1


def test_a_program_may_not_last_for_ever():
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run("import threading\nthreading.Event().wait()", timeout=1)
    assert warm.run("print('the next')").stdout == "the next\n"
