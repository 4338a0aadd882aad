"""Programs that see the bridge's sources raw, through tests/helpers/sourceprobe.c."""

import functools
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).resolve().parents[2]

ALLOC_AND_FREE = ["alloc", "free_requested", "free_completed"]
BACKWARD, BLOCK_KNOWN, POOL_KNOWN = 0x01, 0x02, 0x10  # ML_EVENT_*
EUNSUPPORTED, ESTATE, EINVALID = -9, -3, -2  # ML_E*, by their order in memlab.h

PREAMBLE = """
import gc, json, sys
sys.path.insert(0, {folder!r})
import torch
import sourceprobe as probe
from memlab._native import bridge as _bridge
bridge = _bridge.import_bridge(torch, _bridge.bridge_path(torch))
registered = bridge.register(probe._api)

def start(name):
    answer = probe.attach(name)
    assert answer == (0, ""), answer
    probe.enable(name, True)

def actions(name):
    return [event["action"] for event in probe.events(name)]
"""


@functools.cache
def probe_folder():
    """The folder of the compiled probe."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler: {compiler[0]} not found")
    folder = Path(tempfile.mkdtemp(prefix="memlab-probe-"))
    subprocess.run(
        [
            *compiler,
            *"-std=c11 -O1 -g -Wall -Wextra -Werror -fPIC -shared -pthread".split(),
            *("-isystem", sysconfig.get_path("include")),
            *(f"-I{ROOT / folder}" for folder in ("csrc/core", "csrc/torch")),
            str(ROOT / "tests/helpers/sourceprobe.c"),
            *("-o", str(folder / "sourceprobe.so")),
        ],
        check=True,
    )
    return folder


def program(body):
    """The source of a program that starts with the bridge registered at the probe."""
    return PREAMBLE.format(folder=str(probe_folder())) + body


def run(body, *, check=True, env=None, timeout=300):
    """Runs program(body) in a process of its own, without a GPU."""
    env = {**os.environ, **(env or {})}
    done = warm.run(program(body), env=env, timeout=timeout)
    if check and done.returncode != 0:
        pytest.fail(
            f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}",
            pytrace=False,
        )
    return done
