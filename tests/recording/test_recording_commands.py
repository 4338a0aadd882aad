"""report, view, convert, merge and diff as functions: what the command line calls."""

import contextlib
import io
import json
import os
import pydoc

import pytest
from exports import small
from rank_files import MIB, snapshot, write

import memlab
from memlab._cli import main


def run(*args):
    """(exit status, stdout) of memlab ARGS, in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main.main([str(arg) for arg in args])
    return status, out.getvalue()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.pickle"
    small().write_pickle(path, True)
    return str(path)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (["--full"], {"full": True}),
        (["--at", "end", "--by", "line", "--lines", "1"], {"at": "end", "by": ["line"], "lines": 1}),
        (["--device", "1"], {"device": 1}),
        (["-f", "grow"], {"functions": ["grow"]}),
        (["--at", "event:1", "--device", "0"], {"at": "event:1", "device": 0}),
    ],
)
def test_a_report(path, words, arguments):
    answer = memlab.report(path, **arguments)
    assert run("report", path, *words) == (0, f"{answer}\n")
    words = [word for word in words if word not in ("--full", "--by", "line")]
    assert json.loads(run("report", path, *words, "--json")[1]) == answer


def test_a_report_of_what_is_open(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = memlab.report(memlab.open("run.pickle"))
    assert answer["file"] == "run.pickle"
    assert answer["devices"][1]["peak"]["allocated_bytes"] == 512
    assert "Next: memlab report --full run.pickle\n" in str(answer)
    answer = memlab.report(small())
    assert answer["file"] is None and "Next:" not in str(answer)


def test_a_report_of_what_there_is_not(path):
    with pytest.raises(ValueError, match="an event is of one device: add device or rank"):
        memlab.report(path, at="event:0")
    with pytest.raises(ValueError, match="no table by 'colour'"):
        memlab.report(path, by=["colour"])
    with pytest.raises(memlab.Error, match="no memory of device 7"):
        memlab.report(path, device=7)


@pytest.mark.parametrize("command", ["explain", "replay", "tune"])
def test_the_laboratory(path, command):
    answer = getattr(memlab, command)(path)
    assert run(command, path) == (0, f"{answer}\n")
    assert json.loads(run(command, path, "--json")[1]) == answer


def test_a_difference(path, tmp_path):
    small("shrink").write_pickle(tmp_path / "after.pickle", True)
    after = str(tmp_path / "after.pickle")
    answer = memlab.diff(path, after, at=("peak", "event:0"), device=0, lines=1)
    words = ["diff", path, after, "--at", "peak,event:0", "--device", "0"]
    assert run(*words, "--lines", "1") == (0, f"{answer}\n")
    assert json.loads(run(*words, "--json")[1]) == answer


def test_a_page(path, tmp_path, monkeypatch):
    page = memlab.view(path)
    assert page == str(tmp_path / "run.html")
    first = (tmp_path / "run.html").read_bytes()
    assert run("view", path) == (0, f"Page: {page}\n")
    assert (tmp_path / "run.html").read_bytes() == first
    assert memlab.open(path).view(tmp_path / "other.html") == str(tmp_path / "other.html")
    assert (tmp_path / "other.html").read_bytes() == first
    # Of no file: here.
    monkeypatch.chdir(tmp_path)
    assert memlab.view(small()) == memlab.view() == "memlab.html"
    assert run("view") == (0, "Page: memlab.html\n")


def test_a_page_of_a_folder(tmp_path):
    write(tmp_path, rank0=snapshot(0, sizes=[MIB]), rank1=snapshot(1, sizes=[MIB]))
    assert memlab.view(tmp_path) == str(tmp_path / "memlab.html")


def test_a_file_for_another_tool(path, tmp_path):
    memlab.convert(path, tmp_path / "mine.csv", table="events", device=1)
    assert run("convert", path, tmp_path / "theirs.csv", "--table", "events", "--device", "1")[0] == 0
    assert (tmp_path / "mine.csv").read_bytes() == (tmp_path / "theirs.csv").read_bytes()
    memlab.convert(memlab.open(path), tmp_path / "stacks", "folded")
    assert (tmp_path / "stacks").read_text() == small().stacks_folded(None).decode()
    there = set(os.listdir(tmp_path))
    for out, to, more, said in (
        ("x.txt", None, {}, "expected a name that ends in"),
        ("x.csv", "word", {}, "no format 'word': there are pickle, json"),
        ("x.csv", None, {"table": "rows"}, "no table 'rows': there are allocations"),
        ("x.csv", None, {"device": 9}, "devices 0 to 1, no 9"),
    ):
        with pytest.raises((memlab.Error, ValueError), match=said):
            memlab.convert(path, tmp_path / out, to, **more)
    assert set(os.listdir(tmp_path)) == there


def test_ranks(tmp_path):
    paths = write(tmp_path, rank0=snapshot(0, sizes=[MIB]), rank1=snapshot(1, sizes=[2 * MIB]))
    answer = memlab.merge(paths).ranks()
    assert run("merge", *paths) == (0, f"{answer}\n")
    assert json.loads(run("merge", tmp_path, "--json")[1]) == memlab.open(tmp_path).ranks()


def test_help_begins_with_what_people_use():
    text = pydoc.plaintext.document(memlab)
    first = text[: text.index("PACKAGE CONTENTS")]
    names = ("MemorySnapshot", "open", "merge", "report", "view", "diff", "convert", "explain")
    assert [name for name in names if name not in first] == []
    # One screen.
    assert len(first.splitlines()) <= 36
