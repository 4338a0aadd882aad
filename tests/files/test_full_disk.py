"""Where what was asked for does not arrive, a command says why and fails; each output is on
its own, and no error of the system or of too little memory ends in a traceback."""

import contextlib
import errno
import io
import json
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from preload import shared_library
from segments import BASE, MIB, block, segment

from memlab import _core, _guard
from memlab._cli import main
from memlab._errors import Error
from memlab._export import export
from memlab._text import terminal

HERE = Path(__file__).parents[1]

PROGRAM = """
import torch
kept = [torch.zeros(1000) for _ in range(10)]
"""


def events(count):
    told = []
    for i in range(count):
        told.append(
            {
                "action": "alloc",
                "addr": BASE + 512 * i,
                "size": 512,
                "stream": 0,
                "time_us": i,
                "frames": [{"filename": "a.py", "name": f"f{i}", "line": i}],
            }
        )
    return told


def snapshot(path, count=10):
    data = {
        "segments": [segment(BASE, [block(BASE, 2 * MIB, 0, "inactive")])],
        "device_traces": [events(count)],
    }
    path.write_bytes(pickle.dumps(data, 4))
    return str(path)


def memlab(*arguments, limits=(), module="memlab", **how):
    """The command as a user starts it, with its stderr; LIMITS: (which, soft limit)."""

    def limit():
        for which, soft in limits:
            resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))

    how = {"stdout": subprocess.PIPE, **how}
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        **how,
    )


# FILE is a snapshot, DIR a folder.
COMMANDS = {
    "report": "report FILE",
    "json": "report FILE --json",
    "markdown": "report FILE --markdown",
    "lines": "report FILE --by line",
    "replay": "replay FILE",
    "explain": "explain FILE --json",
    "tune": "tune FILE",
    "diff": "diff FILE FILE",
    "merge": "merge FILE --json",
    "convert": "convert FILE DIR/a.csv",
    "view": "view FILE --out DIR/a.html",
    "empty page": "view --out DIR/b.html",
    "backends": "backends",
    "phantom": "phantom --list",
    "version": "--version",
    "help": "--help",
    "help of a command": "report --help",
    "help of the phantom": "phantom --help",
}


def arguments(name, folder, count=10):
    file = snapshot(folder / "a.pickle", count)
    return COMMANDS[name].replace("FILE", file).replace("DIR", str(folder)).split()


def refused(done, words):
    """One line that says WORDS, and a status that is not 0."""
    lines = done.stderr.splitlines()
    return done.returncode == 1 and len(lines) == 1 and words in lines[0], done


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_that_does_not_arrive_is_an_error(name, tmp_path):
    with open("/dev/full", "w") as full:
        done = memlab(*arguments(name, tmp_path), stdout=full)
    good, done = refused(done, "No space left on device")
    assert good, done


@pytest.mark.parametrize("name", ["report", "json", "phantom", "version", "help"])
def test_a_stdout_that_is_closed_is_an_error(name, tmp_path):
    line = " ".join([sys.executable, "-m", "memlab", *arguments(name, tmp_path)])
    done = subprocess.run(
        ["sh", "-c", f"{line} >&-"], stderr=subprocess.PIPE, text=True
    )
    good, done = refused(done, "the answer could not be written to stdout")
    assert good, done


def test_a_reader_that_leaves_is_no_error(tmp_path):
    file = snapshot(tmp_path / "a.pickle", 3000)
    for option in ("--json", "--markdown"):
        line = f"{sys.executable} -m memlab report {file} {option}"
        done = subprocess.run(
            ["bash", "-c", f"{line} | head -c 1 >&2; echo ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
        )
        assert done.stdout == "0\n" and len(done.stderr) == 1, done


def test_help_is_told_as_it_was():
    """To a reader, whole, and with its status; wrong usage goes to stderr."""
    shown = memlab("report", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: memlab report ")
    assert shown.stdout.endswith("\n") and not shown.stdout.endswith("\n\n")
    wrong = memlab("report")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("usage: memlab report ")
    with open("/dev/full", "w") as full:
        assert memlab("report", stdout=full).returncode == 2


def test_the_help_of_viz():
    with open("/dev/full", "w") as full:
        done = memlab("trace", "--help", module="memlab.viz", stdout=full)
    assert refused(done, "No space left on device")[0], done


def test_the_pages_of_viz(tmp_path):
    file = snapshot(tmp_path / "a.pickle")
    with open("/dev/full", "w") as full:
        done = memlab("trace", file, module="memlab.viz", stdout=full)
    assert refused(done, "No space left on device")[0], done


# ---- memlab run ----


def run(folder, *options, **how):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return memlab(
        "run", "--device", "cpu", "--out", folder / "out", *options, program, **how
    )


def test_a_stdout_that_is_full_is_the_programs_matter(tmp_path):
    """memlab writes nothing there."""
    with open("/dev/full", "w") as full:
        done = run(tmp_path, stdout=full)
    assert done.returncode == 0 and "Peak on cpu" in done.stderr, done
    assert (tmp_path / "out/report.txt").read_text().startswith("Peak on cpu")


def test_a_stderr_that_is_full_changes_nothing(tmp_path):
    line = (
        f"{sys.executable} -m memlab run --device cpu --out {tmp_path}/out program.py"
    )
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        ["sh", "-c", f"{line} 2>/dev/full"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and done.stdout == done.stderr == "", done
    assert (tmp_path / "out/report.txt").read_text().startswith("Peak on cpu")


def test_each_output_of_a_run_is_on_its_own(tmp_path):
    """Files may have 16 KiB: there is room for the report alone."""
    done = run(tmp_path, limits=[(resource.RLIMIT_FSIZE, 16 << 10)])
    assert done.returncode == 0 and "Peak on cpu" in done.stderr, done
    lines = done.stderr.splitlines()
    assert [
        line for line in lines if "rank0.html was not written: File too large" in line
    ]
    assert [
        line for line in lines if "recording without" in line and "rank0.mlab" in line
    ]
    assert "Traceback" not in done.stderr
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert "report.txt" in found and "rank0.html" not in found
    shown = done.stderr[done.stderr.index("Files in") : done.stderr.index("Next:")]
    assert "report.txt" in shown and "rank0.html" not in shown and ".mlab" not in shown
    assert ("rank0.pickle" in shown) == ("rank0.pickle" in found)


def test_not_even_the_report_has_room(tmp_path):
    done = run(tmp_path, limits=[(resource.RLIMIT_FSIZE, 10)])
    assert done.returncode == 0 and "Peak on cpu" in done.stderr, done
    for name in ("report.txt", "rank0.pickle", "rank0.html"):
        assert f"{name} was not written: File too large" in done.stderr
    assert "Files in" not in done.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == {".rank0.lock"}


# ---- The lock of a folder of results ----


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "fifo", "folder"])
def test_a_lock_that_another_has_made_is_refused(kind, tmp_path):
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    lock = out / ".rank0.lock"
    if kind != "dangling":
        victim.write_text("kept")
    if kind == "hard link":
        os.link(victim, lock)
    elif kind == "fifo":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(victim)
    done = run(tmp_path)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert "cannot write results to" in done.stderr and "another --out" in done.stderr
    if kind != "folder":
        assert f"{lock} is " in done.stderr and "remove it" in done.stderr
    assert victim.exists() == (kind != "dangling")


# ---- Exports ----


@contextlib.contextmanager
def small_disk(folder):
    """A file system of 64 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "memlab", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        # pyarrow keeps a file open that it could not write.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def full_disk(folder):
    with small_disk(folder):
        with contextlib.suppress(OSError), open(folder / "filler", "wb", 0) as file:
            while True:
                file.write(bytes(4096))
        yield


def test_a_run_without_room_names_what_there_is(tmp_path):
    """The recording has no room, the report in words has."""
    folder = tmp_path / "disk"
    folder.mkdir()
    (tmp_path / "train.py").write_text(PROGRAM.replace("range(10)", "range(20000)"))
    with small_disk(folder):
        words = ("run", "--device", "cpu", "--out", "disk/out", "train.py")
        done = memlab(*words, cwd=tmp_path)
        assert done.returncode == 0 and (folder / "out" / "report.txt").exists(), done
        assert done.stderr.splitlines()[-1] == "Next: less disk/out/report.txt"


def write_export(form, path, capsys):
    if form in ("arrow", "parquet"):
        pytest.importorskip("pyarrow")
    file = snapshot(path.parent.parent / "a.pickle", 3000)
    status = main.main(["convert", file, str(path), "--to", form])
    said = capsys.readouterr().err
    assert status == 1 and len(said.splitlines()) == 1, said
    assert str(path) in said and {*os.listdir(path.parent)} <= {"filler"}
    return said


@pytest.mark.parametrize("form", sorted(export.FORMATS))
def test_a_full_disk(form, tmp_path, capsys):
    folder = tmp_path / "disk"
    folder.mkdir()
    with full_disk(folder):
        said = write_export(form, folder / "file", capsys)
        assert "No space left on device; make room" in said


# The core writes the others without this function: test_outfile.c limits those.
@pytest.mark.parametrize("form", sorted({*export.FORMATS} - {"pickle", "perfetto", "json"}))
def test_a_limit_of_file_size(form, tmp_path, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    snapshot(tmp_path / "a.pickle", 3000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    original = _core.write_file

    def limited(path, data):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            return original(path, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_core, "write_file", limited)
        write_export(form, folder / "file", capsys)


def test_counts_above_what_sqlite_holds(tmp_path):
    import sqlite3

    class Recording:
        source, device_count = "cuda", 1

        def counts(self, device):
            names = "events overwritten_events dropped_events lost_stacks lost_names"
            return dict.fromkeys(names.split(), 2**64 - 1)

        def device_name(self, device):
            return "cuda:0"

    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        export._write_about(database, Recording())
        (row,) = database.execute("SELECT * FROM devices")
    # As addresses, which VIEWING.md tells.
    assert row == (0, "cuda:0", -1, -1, -1, -1, -1)


# ---- Memory and numbers ----


@pytest.mark.parametrize("command", ["replay", "tune", "explain"])
def test_more_memory_than_there_can_be(command, tmp_path, capsys):
    file = snapshot(tmp_path / "a.pickle")
    for text in ("9" * 20, "9" * 400, "4194304TiB", "0.1B"):
        with pytest.raises(SystemExit) as caught:
            main.main([command, file, "--memory", text])
        assert caught.value.code == 2
        assert "is not a memory size; write for example 24GiB" in capsys.readouterr().err
    assert main.main([command, file, "--memory", "4194303TiB"]) == 0
    recording = _core.Recording.from_bytes((tmp_path / "a.pickle").read_bytes())
    import memlab

    with pytest.raises(ValueError, match="less than 2\\^62"):
        getattr(memlab, command)(recording, memory=2**62)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        ImportError("libx.so: failed to map segment from shared object"),
    ],
)
def test_too_little_memory_is_told_as_such(error, capsys):
    def command():
        raise error

    assert _guard.guarded(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "got no more memory; raise its limit" in line
    with pytest.raises(ImportError):
        _guard.guarded(lambda: __import__("no_such_module_of_memlab"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_under_a_limit_of_memory(name, tmp_path):
    """It works or says in a line that there is no memory, whatever it was doing then."""
    line = arguments(name, tmp_path, 60_000)
    done = memlab(*line, limits=[(resource.RLIMIT_AS, 100_000 << 10)])
    if done.returncode != 0:
        assert refused(done, "no more memory; raise its limit")[0], done


def test_memlab_leaves_most_of_a_limit_to_the_program():
    # Its tables once took all that was left by this one.
    done = memlab("backends", limits=[(resource.RLIMIT_AS, 250_000 << 10)])
    assert done.returncode == 0, done


# ---- The terminal ----


class _Full(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8")

    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_only_said_never_fails():
    for stream in (_Full(), None):
        assert isinstance(terminal.say("x", stream), OSError)
        assert isinstance(terminal.show("x", stream), OSError)
    closed = io.StringIO()
    closed.close()
    assert terminal.say("x", closed) is None


def test_an_answer_fails(monkeypatch):
    monkeypatch.setattr(sys, "stdout", _Full())
    with pytest.raises(Error, match="could not be written to stdout: No space"):
        terminal.answer("x")


# ---- Allocations that fail ----

FAILING = """
import collections, ctypes, io, json, sys
from memlab._cli import main

fail = ctypes.CDLL(None).no_memory
fail.argtypes, fail.restype = [ctypes.c_long] * 2, ctypes.c_long

def run(failing):
    "What is said where this allocation fails, alone, and the number of all."
    first, none = ctypes.c_long(failing), ctypes.c_long(0)
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    fail(first, first)
    try:
        status = main.main(sys.argv[2:])
    finally:
        try:
            passed = fail(none, none)
        except ctypes.ArgumentError:  # this call's own allocation was the one
            passed = fail(none, none)
    return f"{status} {sys.stderr.getvalue()}", sys.stdout.getvalue(), passed

for _ in range(3):  # what is made once
    _, answer, total = run(1 << 40)
told = collections.Counter()
for failing in range(20, total - 40, int(sys.argv[1])):
    try:
        said, out, _ = run(failing)
        # CPython 3.14 says so, and goes on.
        said = said.partition("Exception ignored while clearing an object managed dict")[0]
        told[said if said != "0 " or out == answer else "another answer"] += 1
    except BaseException as error:
        told[f"{failing}: {error!r}"] += 1
sys.stdout = sys.__stdout__
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def no_memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("no_memory")
    return shared_library(HERE / "helpers" / "no_memory.c", folder / "no_memory.so")


@pytest.mark.parametrize("name", ["report", "json", "explain", "convert", "replay", "merge"])
def test_an_allocation_that_fails_alone(name, no_memory, tmp_path):
    """Of memlab's, or of CPython, which may lose the exception of one."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING, "7", *arguments(name, tmp_path)],
        env={
            **os.environ,
            "LD_PRELOAD": str(no_memory),
            "PYTHONMALLOC": "malloc",
            "PYTHONHASHSEED": "0",  # the same allocations in each run
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    right = {"0 ", f"1 memlab: {_guard._NO_MEMORY}\n"}
    assert set(told) <= right and sum(told.values()) > 100, told
