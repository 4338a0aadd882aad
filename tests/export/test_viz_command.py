"""python -m memlab.viz: the commands of torch.cuda._memory_viz, what they write and refuse."""

import gzip
import io
import os
import pickle
import subprocess
import sys

import pytest
from modes import NEW
from segments import changed, snapshot, two_segments

from memlab import viz


def run(monkeypatch, capsys, *argv, stdin=b""):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
    try:
        status = viz.main(list(map(str, argv)))
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in (("a", snapshot(two_segments())), ("b", changed())):
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(data))
    return tmp_path


def test_texts(files, monkeypatch, capsys):
    data = snapshot(two_segments())
    assert run(monkeypatch, capsys, "stats", "a.pickle") == (0, viz.segsum(data) + "\n", "")
    assert run(monkeypatch, capsys, "trace", "a.pickle") == (0, viz.trace(data) + "\n", "")


def test_pictures_and_pages(files, monkeypatch, capsys):
    before, after = snapshot(two_segments()), changed()
    for argv, name, text in [
        (("segments", "a.pickle"), "output.svg", viz.segments(before)),
        (("memory", "a.pickle", "-o", "m.svg"), "m.svg", viz.memory(before)),
        (("compare", "a.pickle", "b.pickle"), "output.svg", viz.compare(before, after)),
        (("trace_plot", "a.pickle"), "output.html", viz.trace_plot(before)),
        (
            ("trace_plot", "a.pickle", "-d", "0", "-s", "-f", "--output", "t.html"),
            "t.html",
            viz.trace_plot(before, 0, True, True),
        ),
        (("segment_plot", "a.pickle", "-d", "0"), "output.html", viz.segment_plot(before)),
    ]:
        assert run(monkeypatch, capsys, *argv) == (0, "", "")
        assert (files / name).read_text() == text
        assert (files / name).stat().st_mode & 0o777 == NEW


def test_stdin_in_a_process(files):
    done = subprocess.run(
        [sys.executable, "-m", "memlab.viz", "stats", "-"],
        input=gzip.compress((files / "a.pickle").read_bytes()),
        capture_output=True,
        timeout=120,
    )
    assert done.stdout.decode() == viz.segsum(snapshot(two_segments())) + "\n"


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


@pytest.mark.parametrize("stdin", [pickle.dumps(Evil()), b"", b"\x89MLAB\r\n\x1a"])
def test_nothing_is_unpickled(files, monkeypatch, capsys, stdin):
    (files / "evil.pickle").write_bytes(stdin)
    for name in ("-", "evil.pickle"):
        status, out, err = run(monkeypatch, capsys, "stats", name, stdin=stdin)
        assert (status, out) == (1, "")
        assert err.startswith("memlab: ") and err.count("\n") == 1
    assert not (files / "evil").exists()


def test_wrong_usage(files, monkeypatch, capsys):
    assert run(monkeypatch, capsys)[0] == 2
    assert run(monkeypatch, capsys, "stats")[0] == 2
    assert run(monkeypatch, capsys, "compare", "-", "-")[0] == 1
    assert run(monkeypatch, capsys, "stats", "none.pickle")[0] == 1
