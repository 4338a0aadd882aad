"""memlab dump: what a running job holds now, as files."""

import os

import pytest
from job import Job

from memlab._cli import main
from memlab._files.load import load, read_recording

MIB = 1 << 20


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.close()


def live(path):
    """Sizes of the blocks that a snapshot has as active, in MiB."""
    blocks = [block for segment in load(path)["segments"] for block in segment["blocks"]]
    return sorted(b["size"] // MIB for b in blocks if b["state"] == "active_allocated")


def test_a_running_job_is_written_as_it_is_now(job, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    job("alloc 1 8", "alloc 2 16", "free 1", "alloc 3 4")
    assert main.main(["dump", str(job.process.pid)]) == 0
    told = capsys.readouterr().out
    assert f"Still being recorded by process {job.process.pid}" in told
    assert "At the end on script:0: 20.0 MiB allocated" in told
    assert told.endswith("Wrote memlab_dump/job.pickle\n")
    assert live("memlab_dump/job.pickle") == [4, 16]
    # The job went on, and a later look has what it did.
    job("free 3", "end")
    assert main.main(["dump", job.file, "--out", "later"]) == 0
    assert live("later/job.pickle") == [16]
    assert read_recording("later/job.pickle").peak(0)["peak"]["allocated_bytes"] == 24 * MIB


def test_a_process_counts_with_its_children_whose_files_may_be_named_alike(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    jobs = []
    try:
        for name, mib in ("a", 8), ("b", 16):
            (tmp_path / name).mkdir()
            jobs.append(Job(tmp_path / name))
            jobs[-1](f"alloc 1 {mib}")
        assert main.main(["dump", str(os.getpid())]) == 0
    finally:
        for one in jobs:
            one.close()
    told = capsys.readouterr().out
    assert "8.00 MiB allocated" in told and "16.0 MiB allocated" in told
    written = sorted(path.name for path in (tmp_path / "memlab_dump").iterdir())
    assert written == ["job-2.pickle", "job.pickle"]
    assert sorted(live(f"memlab_dump/{name}") for name in written) == [[8], [16]]


def test_what_cannot_be_dumped_says_why(job, tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    job("alloc 1 8")
    for words, said in (
        (["1000000000"], "there is no process 1000000000"),
        ([job.file, "--out", str(tmp_path / "taken")], "cannot write to"),
        ([str(tmp_path / "none.mlab")], "No such file"),
    ):
        assert main.main(["dump", *words]) == 1
        assert said in capsys.readouterr().err
