"""The temporary folder of memlab fit's runs: it goes with its process, however that ends."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from memlab._fit import folder

HOLDS = """
import os
from memlab._fit import folder
with folder.temporary_folder() as path:
    os.mkdir(path + "/1")
    open(path + "/1/rank0.pickle", "wb").close()
    print(path, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder():
    """A process that has a folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    return process


def test_it_ends_with_the_block(place):
    with folder.temporary_folder() as path:
        assert os.listdir(place) == [os.path.basename(path)]
    assert os.listdir(place) == []


def test_that_of_a_killed_process_is_removed_by_the_next(place):
    lives, killed = holder(), holder()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(os.listdir(place)) == 2
        with folder.temporary_folder():
            assert len(os.listdir(place)) == 2
        assert len(os.listdir(place)) == 1
    finally:
        lives.communicate("\n")
    assert os.listdir(place) == []


def test_folders_of_others_stay(place):
    (place / "memlab_fit_").mkdir()
    (place / "memlab_fit_x").write_text("")
    folder.remove_left()
    assert len(os.listdir(place)) == 2


def test_a_link_to_a_folder_with_a_lock_stays(place, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / ".lock").write_text("")
    (other / "kept").mkdir()
    (place / "memlab_fit_link").symlink_to(other)
    folder.remove_left()
    assert (other / "kept").is_dir() and (place / "memlab_fit_link").is_symlink()
