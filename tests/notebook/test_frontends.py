"""The magics in JupyterLab, Notebook 7 and nbclassic, seen in a browser by frontends.py."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Which command each is started by.
FRONTENDS = {"lab": "jupyter-lab", "notebook": "jupyter-notebook", "nbclassic": "jupyter-nbclassic"}


def missing(command):
    """Why the frontend of COMMAND cannot be driven here; empty: it can."""
    if shutil.which(command) is None:
        return f"{command} is not on the PATH: make test-frontends gets it"
    if not any(map(shutil.which, ("chromium", "google-chrome"))):
        return "there is no Chromium to see it in"
    return ""


@pytest.mark.cuda
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("frontend", FRONTENDS)
def test_a_user_sees_the_chart_the_first_screen_and_the_lines(frontend, tmp_path):
    pytest.importorskip("playwright", reason="playwright is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    if why := missing(FRONTENDS[frontend]):
        pytest.skip(why)
    driver = Path(__file__).with_name("frontends.py")
    done = subprocess.run(
        [sys.executable, driver, frontend, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
