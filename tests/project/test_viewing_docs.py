"""docs/VIEWING.md's examples do what it says: each command and each Python block runs."""

import contextlib
import os
import pickle
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rank_files import snapshot as of_rank

import memlab
from memlab import _core, viz
from memlab._cli import main
from memlab._compare import diff, merge
from memlab._monitor import top as _top
from memlab._report import parts

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "VIEWING.md").read_text()
MIB = 1 << 20
BASE = 1 << 40


# A program that runs the test of the docs, first to write its baseline.
RUNS_TESTS = """
import sys
from pathlib import Path
import pytest

Path("test_example.py").write_text({tests!r})
options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_memlab", "test_example.py"]
sys.exit(pytest.main([*options, "--memory-update"]) or pytest.main(options))
"""

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOCS, re.S | re.M)


def blocks(language):
    return [text for of, text in BLOCKS if of == language]


def commands():
    """The words of each command, of sh blocks and of indented ones."""
    indented = re.findall(r"(?<=\n\n)(?: {4}\S.*\n(?: {4}.*\n)*)", DOCS)
    for block in [*blocks("sh"), *indented]:
        words = []
        for line in block.splitlines():
            words.append(line)
            # A quoted text may go on.
            with contextlib.suppress(ValueError):
                yield shlex.split("\n".join(words), comments=True)
                words = []
        assert not words, block


COMMANDS = list(commands())


def record(path, extra=0):
    """Three steps of 10 ms, each of which leaves a MiB and EXTRA; then one MiB more."""
    script = _core.Script()
    script.reset()
    path.parent.mkdir(exist_ok=True)
    time = iter(range(1_000_000_000, 2_000_000_000, 5_000_000))
    with memlab.MemorySnapshot(source="script", file=path) as snapshot:
        script.emit("segment_alloc", BASE, 64 * MIB, time=next(time))
        for i in range(3):
            script.emit("alloc", BASE + 16 * i * MIB, MIB + extra, time=next(time))
            script.emit("snapshot", 0, 0, time=next(time))
            memlab.step()
        script.emit("alloc", BASE + 48 * MIB, MIB, time=next(time))
    script.reset()
    return snapshot


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the files that the examples name, and the snapshot of one of them."""
    folder = tmp_path_factory.mktemp("viewing")
    for path in ("main/rank0.mlab", "rank0.mlab"):
        record(folder / path)
    record(folder / "branch/rank0.mlab", 2 * MIB)
    snapshot = record(folder / "memlab_out/rank0.mlab")
    for name in ("snapshot.pickle", "before.pickle", "after.pickle"):
        snapshot.save(folder / name)
    ranks = []
    for rank in (0, 3):
        ranks.append(str(folder / f"rank{rank}.pickle"))
        _core.write_file(ranks[-1], pickle.dumps(of_rank(rank, sizes=[512, 1024]), 4))
    merge.merge(ranks).write_pickle(str(folder / "merged.pickle"), True)
    assert main.main(["convert", str(folder / "rank0.mlab"), str(folder / "run.sqlite")]) == 0
    return folder, snapshot


@pytest.fixture
def folder(made, monkeypatch):
    monkeypatch.chdir(made[0])
    return made[0]


def serve(words):
    """Ends it by Ctrl-C once it has said where the page is."""
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline().startswith("Page: http://127.0.0.1:")
            assert "until Ctrl-C" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return process.wait(60)
        finally:
            process.kill()


def top(words, monkeypatch):
    """One look, at the files there are or at those of this process."""
    words = [str(os.getpid()) if word == "4711" else word for word in words]
    monkeypatch.setattr(_top, "_processes", lambda: {os.getpid(): os.getppid()})
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script", file="running.mlab"):
        script.emit("segment_alloc", BASE, 2 * MIB)
        script.emit("alloc", BASE, MIB)
        status = main.main(words if {"--once", "--json"} & {*words} else [*words, "--once"])
    script.reset()
    return status


def ask(words):
    _, path, query = words
    with contextlib.closing(sqlite3.connect(path)) as database:
        # Its event is one of a longer recording than this one.
        assert "6235" in query
        return 0 if database.execute(query.replace("6235", "4")).fetchall() else 1


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_run(folder, monkeypatch, capsys, words):
    if words[-1] == "&":
        assert words[:2] == ["memlab", "run"]
        assert main.parse(words[1:-1]).program == "train.py"
        return
    if "--serve" in words:
        status = serve(words)
    elif words[:2] == ["memlab", "top"]:
        status = top(words[1:], monkeypatch)
    elif words[0] == "sqlite3":
        status = ask(words)
    elif words[:3] == ["python", "-m", "memlab.viz"]:
        status = viz.main(words[3:])
    else:
        assert words[0] == "memlab", words
        status = main.main(words[1:])
    assert status == 0, capsys.readouterr().err
    for word in words[2:]:
        if word.endswith((".html", ".svg", ".csv", ".pftrace")):
            assert (folder / word).stat().st_size > 0


def test_every_command_of_the_page_is_looked_at():
    """By the words that begin a line, which is no sentence."""
    programs = r"memlab|python -m memlab\.viz|sqlite3"
    lines = re.findall(rf"^(?: {{4}})?(?:{programs})(?: .*)?(?<![.:])$", DOCS, re.M)
    assert len(lines) == len(COMMANDS) > 30


def is_test(block):
    return "def test_" in block


@pytest.mark.parametrize("block", [b for b in blocks("python") if not is_test(b)])
def test_python_examples_run(folder, made, capsys, block):
    exec(compile(block, "VIEWING.md", "exec"), {"snapshot": made[1]})
    assert capsys.readouterr().out


@pytest.mark.cuda
def test_the_example_of_a_test_passes(phantom_run):
    (block,) = filter(is_test, blocks("python"))
    done = phantom_run(RUNS_TESTS.format(tests=block))
    assert "1 passed" in done.stdout


def shown_row(change, before, after, category, file, line, function):
    return {
        "difference_bytes": after - before, "before_bytes": before, "after_bytes": after,
        "before_blocks": 1, "after_blocks": 1, "change": change, "move": "",
        "category": category, "file": file, "line": line, "function": function,
        "module": "*", "phase": "forward", "matched_by": "", "reason": "",
    }


def test_the_account_of_a_difference_is_as_shown():
    """From figures as in the example, what is shown."""
    answer = {
        side: {"file": f"{run}/rank0.mlab", "at": "peak", "device": 0, "name": "cuda:0"}
        for side, run in (("before", "main"), ("after", "branch"))
    }
    answer["difference"] = {
        "before_bytes": 126 * MIB, "after_bytes": 150 * MIB, "difference_bytes": 24 * MIB,
        "before": {"step": 2, "phase": "optimizer"},
        "after": {"step": 2, "phase": "optimizer"},
        "by_line": [
            shown_row("appeared", 0, 20 * MIB, "optimizer_state", "train.py", 46,
                      "train_step"),
            shown_row("grew", 4 * MIB, 8 * MIB, "activation", "train.py", 23, "forward"),
        ],
        "by_category": {}, "phases": [], "phases_left_out": 0,
    }
    (shown,) = blocks("")
    text = parts.joined([], diff.sections(answer))
    assert text.rstrip("\n") == shown.rstrip("\n")
