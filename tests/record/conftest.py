"""The capture of stacks, for the tests of frames, and a trainer's work, for those of windows."""

import pytest
from stackprobe import build
from window_files import SEGMENT

from memlab import _core


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    return build(tmp_path_factory.mktemp("probe"), "stackprobe")


@pytest.fixture(scope="session")
def public_probe(tmp_path_factory):
    """Built as for a Python whose frames are not known."""
    folder = tmp_path_factory.mktemp("public_probe")
    return build(folder, "publicprobe", '-DWALK_UNKNOWN="for the test"')


@pytest.fixture
def work(tmp_path, monkeypatch):
    """What a batch does: of number N, one block of N + 1 times 512 bytes."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    source = _core.Script()
    source.reset()
    source.emit("segment_alloc", SEGMENT, 20 << 20)

    def one_batch(batch):
        source.emit("alloc", SEGMENT, (batch + 1) * 512)
        source.emit("free_completed", SEGMENT, (batch + 1) * 512)

    return one_batch
