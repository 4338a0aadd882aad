"""Lines of code in recordings: which are kept, what the recorder reads for them, and a
stranger's."""

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
from code_lines import PROGRAM, SECRET, kept, record

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


# ---- What is kept ----

KEPT = {
    ("step", 2): "    allocate(size=KIB)  # in",
    ("forward", 7): "        return step()   # out",
    ("<module>", 9): "Net().forward()",
}


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


LIBRARY = """\
import torch

class Trainer:
    def train(self, net):
        kept = torch.ones(100)
        return net(kept), kept

class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1
"""


def test_a_models_own_line_in_a_library_has_its_class(tmp_path, monkeypatch):
    """Not what drives it: to find the functions of many files takes long."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "classlib.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    import classlib

    with memlab.MemorySnapshot(source="cpu") as snapshot:
        kept = classlib.Trainer().train(classlib.Net())
    lines = snapshot.data().code_lines()
    about = {line[2]: line[4] for line in lines if line[0] == str(folder / "classlib.py")}
    assert {number: about[number] for number in (5, 6, 10)} == {
        5: "train", 6: "train", 10: "Net.forward",
    }  # fmt: skip
    assert len(kept) == 2
    own = [x for x in snapshot.peak()["by_line"] if x["file"] == __file__]
    inner = {each["qualname"] for line in own for each in line["inner"]}
    assert inner == {"train", "Net.forward"}


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
        [sys.executable, "-m", "memlab", "report", "--full", "--markdown", path],
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
