"""Lines of code in reports: whose files are read for them, and by whom."""

import functools
import json
import linecache
import os
import pickle
import shutil
import signal
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

import memlab
from memlab import _core
from memlab._compare import merge
from memlab._files import load
from memlab._report import report
from memlab._text import code as _code
from memlab._text import wording

ROOT = Path(__file__).resolve().parents[2]
KIB = 1 << 10
MIB = 1 << 20
SEGMENT = 1 << 40
SECRET = "PASSWORD = 'swordfish'"


@pytest.fixture
def script():
    source = _core.Script()
    source.reset()
    yield source
    source.reset()


def named(code, path):
    """CODE as if it were of the file at PATH, which may be no name of a file."""
    constants = tuple(
        named(item, path) if isinstance(item, types.CodeType) else item
        for item in code.co_consts
    )
    return code.replace(co_filename=path, co_consts=constants)


def record(script, path, source="x = 1\nallocate(size=KIB)\n", text=None, **options):
    """The recording of SOURCE, run as if it were the file at PATH, whose text becomes TEXT,
    where it is not None, before the recording is read."""
    with memlab.MemorySnapshot(source="script", **options) as snapshot:
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        allocate = functools.partial(script.emit, "alloc", SEGMENT)
        code = compile(source, "program.py", "exec")
        exec(named(code, str(path)), {"allocate": allocate, "KIB": KIB})
        if text is not None:
            Path(path).write_text(text)
    script.reset()
    return snapshot.data()


def kept(recording, path):
    """{(function, line): text} of what RECORDING has of the file at PATH."""
    lines = recording.code_lines()
    return {(line[1], line[2]): line[3] for line in lines if line[0] == str(path)}


# ---- What is kept ----

PROGRAM = """\
def step():
    allocate(size=KIB)  # in
    return "not named"

class Net:
    def forward(self):
        return step()   # out

Net().forward()
"""
KEPT = {
    ("step", 2): "    allocate(size=KIB)  # in",
    ("forward", 7): "        return step()   # out",
    ("<module>", 9): "Net().forward()",
}


@pytest.fixture
def program(script, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_the_lines_that_frames_name_and_no_others(script, program):
    recording = record(script, program, PROGRAM)
    assert kept(recording, program) == KEPT
    changed = os.stat(program).st_mtime_ns // 1000
    about = {line[1]: line[4:] for line in recording.code_lines() if line[0] == str(program)}
    assert about == {
        "step": ("step", 1, 3, changed),
        "forward": ("Net.forward", 6, 7, changed),
        "<module>": ("<module>", 1, 10, changed),
    }


def test_every_file_has_them(script, program, tmp_path):
    """The program is gone when they are read."""
    file, copy, merged = (tmp_path / n for n in ("a.mlab", "a.pickle", "b.pickle"))
    recording = record(script, program, PROGRAM, file=file)
    program.unlink()
    recording.write_pickle(copy, True)
    both = merge.merge([str(file), str(copy)])
    both.write_pickle(merged, True)
    again = [load.read_recording(p) for p in (file, copy, merged)]
    for found in (*again, both, recording.excerpt("unfreed"), recording.excerpt("segments")):
        assert sorted(found.code_lines()) == sorted(recording.code_lines())
        assert found.file is None or found.file["unread_records"] == 0
    for path in (file, copy, merged):
        subprocess.run(
            [sys.executable, "-m", "memlab", "convert", path, tmp_path / "c.pickle"],
            check=True, capture_output=True,
        )  # fmt: skip
        assert kept(load.read_recording(tmp_path / "c.pickle"), program) == KEPT
    # As torch has it: the keys that it knows.
    assert _core.Recording.from_bytes(
        pickle.dumps(recording.to_dict(), protocol=4)
    ).code_lines() == []  # fmt: skip


def test_none_are_kept_where_nobody_wants_them(script, program, tmp_path):
    file = tmp_path / "a.mlab"
    recording = record(script, program, PROGRAM, file=file, source_lines=False)
    assert recording.code_lines() == load.read_recording(file).code_lines() == []
    for path in (file, tmp_path / "a.pickle"):
        recording.write_pickle(tmp_path / "a.pickle", True)
        assert b"# in" not in path.read_bytes()


def test_a_file_has_lines_of_events_that_memory_has_no_more(script, program, tmp_path):
    file = tmp_path / "a.mlab"
    with memlab.MemorySnapshot(source="script", file=file, max_entries=1) as snapshot:
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        allocate = functools.partial(script.emit, "alloc", SEGMENT)
        exec(compile(PROGRAM, program, "exec"), {"allocate": allocate, "KIB": KIB})
        for action in ("free_requested", "free_completed", "snapshot"):
            script.emit(action, SEGMENT, KIB)
    assert kept(snapshot.data(), program) == {}
    assert kept(load.read_recording(file), program) == KEPT


def test_a_file_that_is_begun_again_has_them_again(script, program, tmp_path):
    file = tmp_path / "a.mlab"
    snapshot = memlab.MemorySnapshot(source="script", file=file)
    allocate = functools.partial(script.emit, "alloc", SEGMENT)
    for _ in range(2):
        snapshot.start()
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        exec(compile(PROGRAM, program, "exec"), {"allocate": allocate, "KIB": KIB})
        snapshot.data()
        snapshot.stop()
        lines = [line for line in load.read_recording(file).code_lines() if "program" in line[0]]
        assert len(lines) == len(KEPT) and kept(load.read_recording(file), program) == KEPT
        script.reset()


def test_the_recorder_of_torchs_functions_keeps_torchs_keys_only(script, program, tmp_path):
    recording = record(script, program, PROGRAM)
    recording.write_pickle(tmp_path / "a.pickle", False)
    assert set(pickle.loads((tmp_path / "a.pickle").read_bytes())) == set(recording.to_dict())


CRASH = """\
import os, signal, sys
import memlab
from memlab import _core

script = _core.Script()
snapshot = memlab.MemorySnapshot(source="script", file="run.mlab").start()
script.emit("segment_alloc", 1 << 40, 2 << 20)
def work(way):
    script.emit("alloc", 1 << 40, 1024)  # work
    if way == "looked at":
        snapshot.data()
    if way != "exit":
        os.kill(os.getpid(), signal.SIGKILL)
work(sys.argv[1])
"""


@pytest.mark.parametrize("way", ["exit", "looked at", "killed"])
def test_programs_that_do_not_stop_it(tmp_path, way):
    (tmp_path / "program.py").write_text(CRASH)
    done = subprocess.run(
        [sys.executable, "program.py", way], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert done.returncode == (0 if way == "exit" else -signal.SIGKILL)
    recording = load.read_recording(tmp_path / "run.mlab")
    shown = report.text(recording)
    if way == "killed":
        assert "# work" not in shown and "memlab report --source DIR" in shown
        shown = report.text(recording, source=tmp_path)
    assert "# work" in shown


LATE = """\
import os, signal
import memlab
from memlab import _core

script = _core.Script()
snapshot = memlab.MemorySnapshot(source="script", file="run.mlab").start()
def work():
    script.emit("segment_alloc", 1 << 40, 2 << 20)
    script.emit("alloc", 1 << 40, 1024)  # early
    snapshot.data()
    script.emit("alloc", (1 << 40) + 4096, 4096)  # late
    os.kill(os.getpid(), signal.SIGKILL)
work()
"""


def test_a_folder_has_the_lines_that_a_killed_program_did_not_tell(tmp_path):
    """Of a file and a function of which the recording has others."""
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    (here / "program.py").write_text(LATE)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=here, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert done.returncode == -signal.SIGKILL
    recording = load.read_recording(here / "run.mlab")
    text = report.text(recording)
    assert "# early" in text and "# late" not in text and "memlab report --source DIR" in text
    # The copy says other things of what is kept.
    (other / "program.py").write_text(LATE.replace("# early", "# changed"))
    for folder in (here, other):
        text = report.text(recording, source=folder)
        assert "# early" in text and "# changed" not in text
        # In the table by line, and in one of the function.
        assert text.count("# late") == 2 and text.count(":7 work:") == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    text = report.text(recording, source=empty)
    assert "# early" in text and "# late" not in text
    assert "the folder of --source has no such file that Python can read" in text
    assert "memlab report --source DIR" not in text


TRAINING = """\
import os, signal
import torch
import memlab

snapshot = memlab.MemorySnapshot(source="cpu", file="run.mlab").start()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=1, momentum=0.9)
model(torch.ones(64, 64)).sum().backward()  # forward
optimizer.step()  # step
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_program_that_is_killed_after_a_step(torch, tmp_path):
    (tmp_path / "program.py").write_text(TRAINING)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert done.returncode == -signal.SIGKILL
    text = report.text(load.read_recording(tmp_path / "run.mlab"))
    assert "# forward" in text and "# step" in text


def test_memlab_run(torch, tmp_path):
    source = "import torch\nkept = torch.zeros(1 << 20)  # kept\n"
    (tmp_path / "program.py").write_text(source)
    for more, held in ((["--no-source"], False), ([], True)):
        subprocess.run(
            [sys.executable, "-m", "memlab", "run", *more, "--device", "cpu", "program.py"],
            cwd=tmp_path, check=True, capture_output=True,
            env={**os.environ, "PYTHONPATH": ROOT},
        )  # fmt: skip
        for path in ("rank0.mlab", "rank0.pickle", "report.txt"):
            assert (b"# kept" in (tmp_path / "memlab_out" / path).read_bytes()) == held


# ---- What the recorder reads ----


def test_only_sources_of_python_are_read(script, tmp_path):
    env = tmp_path / ".env"
    env.write_text(f"x\n{SECRET}\n")
    link = tmp_path / "link.py"
    link.symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "binary.py").write_bytes(b"x\n\0\n")
    (tmp_path / "latin.py").write_bytes(b"x\n\xff\n")
    with open(tmp_path / "long.py", "w") as file:
        file.truncate(1 << 40)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "short.py").write_text("x\n")
    (tmp_path / "broken.py").write_text("x\ndef (\n")
    names = [*os.listdir(tmp_path), "gone.py", "a\0b.py", "\udcff.py"]
    assert len(names) == 13
    for name in names:
        recording = record(script, tmp_path / name)
        assert set(kept(recording, tmp_path / name).values()) <= {""}, name
    for name in ("setup.py", "<string>", "", "~/x.py"):
        assert kept(record(script, name), name) == {}


def test_a_loader_of_a_module_is_not_called(script, monkeypatch):
    def get_source(name):
        raise AssertionError

    path = "/gone/lazy.py"
    module = types.SimpleNamespace(get_source=get_source)
    names = {"__name__": "lazy", "__loader__": module}
    assert linecache.lazycache(path, names)
    assert kept(record(script, path), path) == {}
    for entry in ((1,), (1, None, None, path), (1, None, [1], path), 7):
        monkeypatch.setitem(linecache.cache, path, entry)
        assert kept(record(script, path), path) == {}


def test_long_lines_are_cut(script, tmp_path):
    path = tmp_path / "long.py"
    source = f"x = 1\nallocate(size=KIB) # {'é' * 10_000}\n"
    path.write_text(source)
    file = tmp_path / "a.mlab"
    recording = record(script, path, source, file=file)
    want = {("<module>", 2): source.split("\n")[1][:400]}
    assert kept(recording, path) == kept(load.read_recording(file), path) == want


def test_a_name_of_any_length(script, tmp_path):
    """What no record of the file has room for is left out, and nothing is counted as lost."""
    file = tmp_path / "a.mlab"
    path = tmp_path / "a.py"
    name = "f" * 5000
    source = f"def {name}():\n    allocate(size=KIB)\n{name}()\n"
    path.write_text(source)
    recording = record(script, path, source, file=file)
    assert set(kept(recording, path)) == {(name, 2), ("<module>", 3)}
    found = load.read_recording(file)
    assert set(kept(found, path)) == {("<module>", 3)}
    assert found.file["lost_records"] == 0


@pytest.mark.parametrize("raised", [OSError, MemoryError, RecursionError, KeyError])
def test_what_fails_there_reaches_nobody(script, program, tmp_path, monkeypatch, raised):
    def fail(*_):
        raise raised

    monkeypatch.setattr(_code, "_read", fail)
    file = tmp_path / "a.mlab"
    recording = record(script, program, PROGRAM, file=file)
    assert kept(recording, program) == {} and recording.peak(0)["by_line"]
    assert kept(load.read_recording(file), program) == {}


@pytest.mark.parametrize("at", ["_read", "lines", "news"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, MemoryError, ValueError])
def test_a_reader_that_is_stopped_loses_no_recording(
    script, program, tmp_path, monkeypatch, at, raised
):
    """Ctrl-C reaches the program, once the recording is there; what fails reaches nobody."""
    asked = []

    def fail(*_):
        asked.append(at)
        raise raised

    monkeypatch.setattr(_code if at == "_read" else _code.Reader, at, fail)
    file = tmp_path / "a.mlab"
    snapshot = memlab.MemorySnapshot(source="script", file=file).start()
    script.emit("segment_alloc", SEGMENT, 2 * MIB)
    allocate = functools.partial(script.emit, "alloc", SEGMENT)
    exec(compile(PROGRAM, program, "exec"), {"allocate": allocate, "KIB": KIB})
    if issubclass(raised, Exception):
        snapshot.stop()
    else:
        with pytest.raises(raised):
            snapshot.stop()
    assert asked and not snapshot.recording
    assert sum(line["bytes"] for line in snapshot.data().peak(0)["by_line"]) == KIB
    assert load.read_recording(file).peak(0)["by_line"][0]["bytes"] == KIB


STRINGS = r'''
class A:
    """\d \/ \\/ \777"""
    def f(self): return (b"\u1234\N", f"\N{EM DASH}\{self}", '\'\
        ', r"\\", r"\"", "\\")
    g = lambda self: 1
    def h(self): return [0x1for x in (1if self else 2,)], 1.5e3or .5if 1_0jin{0o7and 0b1} else 0
    """ 1if \x31if """
'''


def test_nothing_is_warned_of(monkeypatch):
    """Escapes in strings of the program are its own matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = _code.Source(STRINGS.split("\n"), _code._tree(STRINGS), 0)
    assert source.scope("f", 5) == (4, 5, "A.f")
    assert source.scope("<lambda>", 6) == (6, 6, "A.<lambda>")
    assert source.scope("f", 6) is None
    assert source.scope("h", 7) == (7, 7, "A.h")
    # TorchScript's frames of functions that were put into one have no names of their own.
    assert source.scope("<forward op>", 5) == (4, 5, "A.f")
    assert source.scope("<backward op>", 6) == (6, 6, "A.<lambda>")


def test_a_program_for_which_warnings_are_errors_has_its_lines(script, tmp_path):
    path = tmp_path / "program.py"
    source = "x = '\\d' if 1else 2\nallocate(size=1if x else KIB)  # said\n"
    path.write_text(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, path, "exec")
        warnings.simplefilter("error")
        snapshot = memlab.MemorySnapshot(source="script").start()
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
        exec(code, {"allocate": functools.partial(script.emit, "alloc", SEGMENT), "KIB": KIB})
        snapshot.stop()
    assert kept(snapshot.data(), path) == {("<module>", 2): source.split("\n")[1]}


@pytest.fixture
def parsed(monkeypatch):
    """The texts that are parsed from here on."""
    texts, tree = [], _code._tree

    def count(text):
        texts.append(text)
        return tree(text)

    monkeypatch.setattr(_code, "_tree", count)
    return texts


def test_a_file_is_parsed_once(script, tmp_path, parsed):
    path = tmp_path / "program.py"
    source = "".join(f"allocate(size=KIB); look()  # {i}\n" for i in range(5))
    path.write_text(source)
    snapshot = memlab.MemorySnapshot(source="script", file=tmp_path / "a.mlab").start()
    script.emit("segment_alloc", SEGMENT, 2 * MIB)
    allocate = functools.partial(script.emit, "alloc", SEGMENT)
    names = {"allocate": allocate, "KIB": KIB, "look": snapshot.data}
    exec(compile(source, path, "exec"), names)
    snapshot.stop()
    assert parsed.count(source) == 1
    for recording in (snapshot.data(), load.read_recording(tmp_path / "a.mlab")):
        assert list(kept(recording, path).values()) == source.split("\n")[:5]


def test_a_step_waits_for_few_files(torch, tmp_path, parsed):
    """Its hook reads no more than fits; the rest is read at the end."""
    names, paths = ("first", "large", "second", "third"), {}
    texts = {}
    for name, lines in zip(names, (1000, 3000, 1000, 1000), strict=True):
        paths[name] = tmp_path / f"{name}.py"
        texts[name] = f"kept = torch.zeros(99)  # {name}\n" + "#" * 59 * lines + "\n"
        paths[name].write_text(texts[name])
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1)
    file = tmp_path / "a.mlab"
    snapshot = memlab.MemorySnapshot(source="cpu", file=file).start()
    spaces = [{"torch": torch} for _ in names]
    for name, space in zip(names, spaces, strict=True):
        exec(compile(texts[name], paths[name], "exec"), space)
    weight.grad = torch.ones(4)
    del parsed[:]
    optimizer.step()
    at_step = list(parsed)
    assert texts["first"] in at_step and texts["large"] not in at_step
    assert sum(map(len, at_step)) <= 128 * KIB
    assert texts["third"] not in at_step
    snapshot.stop()
    found = load.read_recording(file)
    for name in names:
        assert kept(found, paths[name]) == {("<module>", 1): texts[name].split("\n")[0]}
    assert len(parsed) == len(set(parsed))


# ---- What a report reads ----


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
            f"memlab: {source}: no such folder; --source takes the one of the program\n"
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


# ---- What a stranger's lines do ----

HOSTILE = [
    "a|b\\|c\\", "`x` ```` ~~~", "<img src=x onerror=alert(1)>", "@octocat #1 GH-1",
    "</code></details><script>alert(1)</script>", "\n# head\n- x\n\n|---|\n",
    "\x1b[31m\u202eevil\x07", "x" * 5000, "<!-- ", "[bold red]x[/]", "\r\n\0",
]  # fmt: skip


def with_lines(recording, tmp_path, texts):
    """RECORDING, the file of a stranger who wrote TEXTS for lines and names for them."""
    path = tmp_path / "run.pickle"
    recording.write_pickle(path, True)
    snapshot = pickle.loads(path.read_bytes())
    code = snapshot["memlab"]["code"]
    for i in range(len(code["text"])):
        code["text"][i] = texts[i % len(texts)]
        code["qualname"][i] = texts[-1 - i % len(texts)] or "x"
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return path


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_strangers_lines_are_shown_as_they_are(script, program, tmp_path, text):
    path = with_lines(record(script, program, PROGRAM), tmp_path, [text])
    recording = load.read_recording(path)
    words = report.text(recording)
    assert words.replace("\n", "").isprintable()
    shown = wording.escape(text.strip())
    assert shown[:60] in words
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "--markdown", path],
        capture_output=True, check=True,
    )  # fmt: skip
    markdown = done.stdout.decode()
    markdown_it = pytest.importorskip("markdown_it", reason="comes with rich")
    html = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(markdown)
    assert "<img" not in html and "<script" not in html and "<!--" not in html
    tables = html.count("<table>")
    assert tables == html.count("</table>") and html.count("<h1") == 0
    # The tables of the lines of functions are in one fence, which ends where it should.
    assert html.count("<pre>") == html.count("</pre>") == 1
    assert "Line by line" in html
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "--json", path],
        capture_output=True, check=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    codes = {line["code"] for table in answer["devices"][0]["lines"] for line in table["lines"]}
    assert codes <= {text.rstrip(), text}


def columns(**change):
    code = {
        "file": ["a.py"], "function": ["f"], "line": [2], "text": ["x"], "qualname": ["f"],
        "first_line": [1], "last_line": [2], "changed_us": [0],
    }  # fmt: skip
    return {**code, **change}


@pytest.mark.parametrize(
    "code, lines",
    [
        ([], 0),
        ({}, 0),
        (columns(text=[]), 0),
        (columns(text="x"), 0),
        (columns(line=["2"]), 0),
        (columns(line=[0]), 0),
        # Where the function ends is not known then.
        (columns(last_line=[-1]), 1),
    ],
)
def test_lines_that_make_no_sense_are_left_out_and_counted(script, tmp_path, code, lines):
    path = tmp_path / "run.pickle"
    record(script, "a.py").write_pickle(path, True)
    snapshot = pickle.loads(path.read_bytes())
    snapshot["memlab"]["code"] = columns()
    known = _core.Recording.from_bytes(pickle.dumps(snapshot, protocol=4))
    assert len(known.code_lines()) == 1 and known.unread == {}
    snapshot["memlab"]["code"] = code
    known = _core.Recording.from_bytes(pickle.dumps(snapshot, protocol=4))
    assert len(known.code_lines()) == lines
    assert known.unread == {"memlab.code": 1}


def test_the_first_of_a_line_counts(script, tmp_path):
    path = tmp_path / "run.pickle"
    record(script, "a.py").write_pickle(path, True)
    snapshot = pickle.loads(path.read_bytes())
    both = {key: value * 2 for key, value in columns(function=["<module>"]).items()}
    both["text"] = ["first", "second"]
    snapshot["memlab"]["code"] = both
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    text = report.text(load.read_recording(path))
    assert "first" in text and "second" not in text
    shutil.copy(path, tmp_path / "other.pickle")
    merged = merge.merge([str(path), str(tmp_path / "other.pickle")])
    assert [line[3] for line in merged.code_lines()] == ["first"]
