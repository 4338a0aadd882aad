"""The folder of --source: which of its files a report reads, and that it opens no other."""

import functools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from code_lines import SECRET, record

import memlab
from memlab import _core
from memlab._report import report
from memlab._text import wording

ROOT = Path(__file__).resolve().parents[2]
KIB = 1 << 10
MIB = 1 << 20
SEGMENT = 1 << 40


def bare(recording):
    return _core.Recording.from_bytes(pickle.dumps(recording.to_dict(), protocol=4))


def shown(recording, source):
    return report.text(recording, source=source)


def test_a_folder_is_searched_by_the_end_of_a_path(script, tmp_path):
    for name in ("a/b/net.py", "b/net.py", "net.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x = 1\nallocate(size=KIB)  # {name}\n")
    for path, found in (
        ("/home/who/a/b/net.py", "a/b/net.py"),
        ("/home/who/b/net.py", "b/net.py"),
        ("/b/other/net.py", "net.py"),
        ("net.py", "net.py"),
        ("C:\\who\\b\\net.py", "b/net.py"),
    ):
        recording = bare(record(script, path))
        assert f"# {found}\n" in shown(recording, tmp_path), path
        assert "# " not in shown(recording, None)


def test_nothing_but_python_inside_the_folder_is_shown(script, tmp_path):
    secret = f"x = 1\n{SECRET}\n"
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    for path in (outside / "settings.py", outside / ".env", inside / ".env", inside / "notes"):
        path.write_text(secret)
    (inside / "link.py").symlink_to(outside / "settings.py")
    (inside / "env.py").symlink_to(inside / ".env")
    (inside / "folder").symlink_to(outside)
    (inside / "loop.py").symlink_to(inside / "loop.py")
    (inside / "zero.py").symlink_to("/dev/zero")
    os.mkfifo(inside / "pipe.py")
    (inside / "dir.py").mkdir()
    (inside / "binary.py").write_bytes(secret.encode() + b"\0")
    with open(inside / "large.py", "w") as file:
        file.truncate(1 << 40)
    for name in (
        f"{outside}/settings.py", "../outside/settings.py", "/x/../outside/settings.py",
        "folder/settings.py", "link.py", "env.py", ".env", "notes", "loop.py", "zero.py",
        "pipe.py", "dir.py", "binary.py", "large.py", "a\0.py", "", "/", "\udcff.py",
        "./notes", "x" * 300 + ".py", "x/" * 100_000 + "settings.py",
    ):  # fmt: skip
        recording = bare(record(script, name))
        for source in (inside, os.path.relpath(inside)):
            text = shown(recording, source)
            assert "swordfish" not in text and wording.size(KIB) in text, name
    # A link that stays inside is the file.
    (inside / "real.py").write_text("x = 1\nallocate(size=KIB)  # real\n")
    (inside / "also.py").symlink_to(inside / "real.py")
    (tmp_path / "way").symlink_to(inside)
    assert "# real" in shown(bare(record(script, "also.py")), tmp_path / "way")


def test_a_folder_that_is_not_there(script, tmp_path):
    file = tmp_path / "a.pickle"
    record(script, "a.py").write_pickle(file, True)
    for source in (tmp_path / "gone", file):
        done = subprocess.run(
            [sys.executable, "-m", "memlab", "report", file, "--source", source],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr == (
            f"memlab: {source}: no such folder; --source takes the program's folder\n"
        )


# Runs memlab with ARGUMENTS after a line that lists what may be opened, and says what else is.
WATCHED = """\
import json, os, sys
import memlab._cli.main, memlab.viz, memlab._files.load
allowed = json.loads(sys.argv[1])
here = os.path.dirname(memlab.__file__)
prefixes = (here, sys.prefix, sys.base_prefix, "/proc/self", "/usr/lib", *allowed)
def watch(event, arguments):
    if event not in ("open", "os.listdir", "os.scandir"):
        return
    path = arguments[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if isinstance(path, str) and not os.path.abspath(path).startswith(prefixes):
        os.write(2, f"OPENED {path!r}\\n".encode())
sys.addaudithook(watch)
main = memlab.viz.main if sys.argv[2] == "viz" else memlab._cli.main.main
sys.exit(main(sys.argv[3:] if sys.argv[2] == "viz" else sys.argv[2:]))
"""


def hostile_names(folder):
    """Files in FOLDER that a stranger would like to see."""
    names = []
    for name in (".env", "settings.py", "secret.txt"):
        (folder / name).write_text(f"x = 1\n{SECRET}\n")
        names.append(str(folder / name))
    os.mkfifo(folder / "pipe.py")
    (folder / "link.py").symlink_to(folder / ".env")
    names += [str(folder / "pipe.py"), str(folder / "link.py")]
    names += ["settings.py", ".env", f"../{folder.name}/settings.py", "~/settings.py"]
    names += ["/etc/passwd", "/dev/zero", "/dev/tty", "/proc/self/environ"]
    return names


def hostile_files(script, folder, names):
    """A pickle and a .mlab file, of which each of NAMES has an allocation that stays."""
    paths = [folder / "evil.pickle", folder / "evil.mlab"]
    with memlab.MemorySnapshot(
        source="script", file=paths[1], source_lines=False
    ) as snapshot:
        for i, name in enumerate(names):
            at = SEGMENT + i * 4 * MIB
            script.emit("segment_alloc", at, 2 * MIB)
            allocate = functools.partial(script.emit, "alloc", at, size=KIB)
            exec(compile("x = 1\nallocate()\n", name, "exec"), {"allocate": allocate})
    snapshot.data().write_pickle(paths[0], True)
    return paths


def commands(file, out):
    for more in ([], ["--markdown"], ["--json"], ["--by", "line", "--by", "stack"]):
        yield ["report", file, "--lines", "99", *more]
    yield ["report", file, "-f", "<module>"]
    for name in ("explain", "tune", "replay"):
        yield [name, file]
        yield [name, file, "--json"]
    yield ["view", file, "--out", out / "page.html"]
    yield ["diff", file, file]
    yield ["diff", file, "--at", "start,end", "--json"]
    yield ["diff", file, file, "--html", out / "diff.html"]
    yield ["merge", file, file, "--out", out / "merged.pickle"]
    for ending in ("json", "html", "sqlite", "folded", "pftrace", "speedscope.json", "pickle"):
        yield ["convert", file, out / f"c.{ending}"]
    yield ["viz", "trace_plot", file, "-o", out / "plot.html"]
    yield ["viz", "segment_plot", file, "-o", out / "segments.html"]
    yield ["viz", "stats", file]
    yield ["viz", "trace", file]
    yield ["viz", "memory", file, "-o", out / "memory.svg"]
    if file.suffix == ".mlab":
        yield ["top", file, "--once"]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_strangers_file_opens_no_other(script, tmp_path, kind):
    home, out = tmp_path / "home", tmp_path / "out"
    home.mkdir()
    out.mkdir()
    names = hostile_names(home)
    file = hostile_files(script, tmp_path, names)[kind]
    for command in commands(file, out):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, json.dumps([str(file), str(out)]),
             *map(str, command)],
            cwd=home, capture_output=True, timeout=120,
            env={**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        said = done.stderr.decode()
        assert done.returncode == 0, (command, said)
        assert "OPENED" not in said, (command, said)
        assert b"swordfish" not in done.stdout
    for path in out.iterdir():
        assert b"swordfish" not in path.read_bytes(), path
    # The check can tell: with the folder, the one file of Python is opened, and no other.
    command = ["report", str(file), "--lines", "99", "--source", str(home)]
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps([str(file)]), *command],
        cwd=home, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    opened = {line for line in done.stderr.splitlines() if line.startswith("OPENED")}
    assert opened == {f"OPENED '{home}/settings.py'"}
