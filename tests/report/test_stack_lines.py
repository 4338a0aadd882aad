"""Functions line by line, from a recording's stacks: what is shown, and of what source."""

import functools
import gzip
import json
import linecache
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pseudo_terminal import in_a_terminal

import memlab
from memlab import _core
from memlab._report import peaks, report, stack_lines
from memlab._text import wording
from memlab._text.code import Code

DATA = Path(__file__).parents[1] / "data"
KIB = 1 << 10
MIB = 1 << 20
SEGMENT = 1 << 40


# ---- What is shown ----

MODEL = """\
class Net:
    def forward(self, deep):
        if deep:
            self.forward(deep - 1)
        allocate(next(at), 4 * KIB)\t# said

        return deep

class Other:
    @staticmethod
    def forward():
        return [allocate(next(at), KIB), allocate(
            next(at), 2 * KIB)]

def main():
    Net().forward(2)
    Other().forward()
    allocate(next(at), 8 * KIB)

main()
"""

MISSING = (
    "the recording has no text of these lines; memlab report --source DIR reads the "
    "program's files"
)
LEGEND = """\
  at peak: live at the peak, allocated while the line ran, by it or its callees
  backward: live at the peak, allocated by the backward pass of these
  peak: most allocated on the device right after an allocation of the line
  allocated: in all, while the line ran; left: of that, not freed at the end
"""

# What a recording has: the lines that its frames name.
KEPT = f"""\
Line by line, the functions whose own lines hold most of the peak
{LEGEND}
  model.py:2 Net.forward: 12.0 KiB (52.2 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
     4  8.00 KiB  8.00 KiB   8.00 KiB  8.00 KiB      self.forward(deep - 1)
     5  12.0 KiB  12.0 KiB   12.0 KiB  12.0 KiB  allocate(next(at), 4 * KIB)     # said

  model.py:15 main: 8.00 KiB (34.8 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
    16  12.0 KiB  12.0 KiB   12.0 KiB  12.0 KiB  Net().forward(2)
    17  3.00 KiB  15.0 KiB   3.00 KiB  3.00 KiB  Other().forward()
    18  8.00 KiB  23.0 KiB   8.00 KiB  8.00 KiB  allocate(next(at), 8 * KIB)

  model.py:10 Other.forward: 3.00 KiB (13.0 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
    12  3.00 KiB  15.0 KiB   3.00 KiB  3.00 KiB  return [allocate(next(at), KIB), allocate(
"""

# What the folder of the program shows of a recording that has no text: whole functions.
TABLES = f"""\
Line by line, the functions whose own lines hold most of the peak
{LEGEND}
  model.py:2 Net.forward: 12.0 KiB (52.2 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
     2                                           def forward(self, deep):
     3                                               if deep:
     4  8.00 KiB  8.00 KiB   8.00 KiB  8.00 KiB          self.forward(deep - 1)
     5  12.0 KiB  12.0 KiB   12.0 KiB  12.0 KiB      allocate(next(at), 4 * KIB)     # said
     6
     7                                               return deep

  model.py:15 main: 8.00 KiB (34.8 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
    15                                           def main():
    16  12.0 KiB  12.0 KiB   12.0 KiB  12.0 KiB      Net().forward(2)
    17  3.00 KiB  15.0 KiB   3.00 KiB  3.00 KiB      Other().forward()
    18  8.00 KiB  23.0 KiB   8.00 KiB  8.00 KiB      allocate(next(at), 8 * KIB)

  model.py:10 Other.forward: 3.00 KiB (13.0 %) of the peak, by its own lines
  line   at peak      peak  allocated      left
    10                                           @staticmethod
    11                                           def forward():
    12  3.00 KiB  15.0 KiB   3.00 KiB  3.00 KiB      return [allocate(next(at), KIB), allocate(
    13                                                   next(at), 2 * KIB)]
"""

RECORDED = 10**18  # unix ns


def write(path, source):
    """SOURCE as the file at PATH, a second older than what record() makes."""
    path.write_text(source)
    os.utime(path, ns=(RECORDED - 10**9, RECORDED - 10**9))


def record(script, source, path, change=None, **options):
    """The recording of SOURCE, run as if it were the file at PATH, with which CHANGE does
    what it likes before the recording is read.  Its allocate(address, bytes) has no frame
    of its own, and `at` gives addresses."""
    addresses = [SEGMENT + i * 4 * MIB for i in range(source.count("next(at)") + 2)]
    with memlab.MemorySnapshot(source="script", **options) as snapshot:
        for address in addresses:
            script.emit("segment_alloc", address, 2 * MIB, time=RECORDED)
        allocate = functools.partial(script.emit, "alloc", time=RECORDED)
        names = {"allocate": allocate, "at": iter(addresses), "KIB": KIB}
        exec(compile(source, str(path), "exec"), names)
        if change is not None:
            change(path)
    return snapshot.data()


def bare(recording):
    """RECORDING as torch would write it, without the text of any line."""
    data = pickle.dumps(recording.to_dict(), protocol=4)
    return _core.Recording.from_bytes(data)


def section(recording, **options):
    """The tables of the report as text."""
    text = report.text(recording, **options)
    begin = text.index("\nLine by line") + 1
    return text[begin : text.index("\nAllocator", begin)]


@pytest.fixture
def model(script, tmp_path):
    """(recording, path) of MODEL, whose file is older than the recording."""
    path = tmp_path / "model.py"
    write(path, MODEL)
    return record(script, MODEL, path), path


def test_the_tables_as_text(model, tmp_path):
    recording, path = model
    path.unlink()
    assert section(recording, start=str(tmp_path)) == KEPT
    write(path, MODEL)
    shown = section(bare(recording), start=str(tmp_path), source=tmp_path)
    assert shown == TABLES
    # Of a file of which the recording has lines, no other is looked at.
    write(path, MODEL.replace("said", "other"))
    assert section(recording, start=str(tmp_path), source=tmp_path) == KEPT


@pytest.mark.parametrize(
    "asked, shown",
    [
        (["main"], ["main"]),
        (["forward"], ["Net.forward", "Other.forward"]),
        (["Other.forward"], ["Other.forward"]),
        (["model.py:main"], ["main"]),
        (["model:Net.forward", "main"], ["Net.forward", "main"]),
        (["{folder}/model.py:main"], ["main"]),
        (["{package}.model:forward"], ["Net.forward", "Other.forward"]),
        (["<module>"], ["<module>"]),
    ],
)
def test_functions_by_name(model, tmp_path, asked, shown):
    names = {"folder": tmp_path, "package": tmp_path.name}
    asked = [name.format(**names) for name in asked]
    tables = peaks.lines(model[0], functions=asked)
    # <module> is also that of the test's runner.
    mine = [t for t in tables if t["file"] == str(model[1])]
    assert [table["function"] for table in mine] == shown
    assert section(model[0], functions=asked).startswith(f"Line by line\n{LEGEND}")


@pytest.mark.parametrize("name", ["none", "odel.py:main", "other:main", "Third.forward"])
def test_a_function_that_is_not_there(model, name):
    with pytest.raises(memlab.Error) as error:
        report.text(model[0], functions=["main", name])
    text = str(error.value)
    assert text.startswith(f"no function {name} allocates in this recording; ")
    place = wording.shorten(str(model[1]))
    assert f"your files' are {place}:Net.forward, {place}:main, " in text
    assert "\n" not in text


def test_long_functions_where_something_happens(script, tmp_path):
    path = tmp_path / "long.py"
    body = [f"    x{i} = {i}\n" for i in range(60)]
    body[20] = "    allocate(next(at), KIB)\n"
    body[58] = "    allocate(next(at), 2 * KIB)\n"
    source = "def long():\n" + "".join(body) + "long()\n"
    write(path, source)
    recording = record(script, source, path)
    (table,) = peaks.lines(recording, functions=["long"])
    assert (table["first_line"], table["last_line"]) == (1, 61)
    shown = section(recording).splitlines()
    assert shown[6].endswith("long: 3.00 KiB (100.0 %) of the peak, by its own lines")
    assert [line.split()[0] for line in shown[8:]] == ["22", "...", "60"]
    recording = bare(recording)
    shown = section(recording, source=tmp_path).splitlines()
    assert [line.split()[0] for line in shown[8:]] == [
        "1", "...", "20", "21", "22", "23", "24", "...", "58", "59", "60", "61"
    ]  # fmt: skip
    named = section(recording, source=tmp_path, functions=["long"]).splitlines()
    assert [line.split()[0] for line in named[8:]] == [str(i) for i in range(1, 62)]


# ---- Source that is not as it was, or not here ----


def states(recording, path, source=None):
    code = Code(recording, source)
    answers = {0: recording.peak(0)}
    tables = stack_lines.tables(recording, answers, ["forward", "main"], code)[0]
    return {(t.name, t.state) for t in tables if t.file == str(path)}


READ = {("Net.forward", "read"), ("Other.forward", "read"), ("main", "read")}


def test_source_that_is_newer_is_shown_and_says_so(script, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    recording = record(script, MODEL, path)
    newer = {(name, "newer") for name, _ in READ}
    assert states(recording, path) == newer
    assert states(bare(recording), path, tmp_path) == newer
    words = "  (its file changed after the recording: these lines may differ)\n"
    assert section(recording).count(words) == 3
    os.utime(path, ns=(RECORDED, RECORDED))
    assert states(recording, path) == newer
    assert states(bare(recording), path, tmp_path) == READ


MERGED = """\
  line   at peak      peak  allocated      left
     4  8.00 KiB  8.00 KiB   8.00 KiB  8.00 KiB
     5  12.0 KiB  12.0 KiB   12.0 KiB  12.0 KiB
    12  3.00 KiB  15.0 KiB   3.00 KiB  3.00 KiB
"""


def differ(path):
    path.write_text("# nothing of what was there\n" * 30)


def break_it(path):
    path.write_text("def forward(:\n" * 30)


def be_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def be_endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def be_a_folder(path):
    path.unlink()
    path.mkdir()


def be_large(path):
    with open(path, "a") as file:
        file.truncate(1 << 34)


@pytest.mark.parametrize(
    "change", [differ, break_it, be_a_pipe, be_endless, be_a_folder, be_large, Path.unlink]
)
def test_source_that_is_not_that_of_the_recording(script, tmp_path, change):
    """Its lines are listed without; methods of one name cannot be told apart."""
    path = tmp_path / "model.py"
    write(path, MODEL)
    recording = record(script, MODEL, path, change)
    state = "differs" if change is differ else "missing"
    want = {("forward", state), ("main", state)}
    assert states(recording, path) == want
    # The folder was asked, too.
    in_folder = {(name, state.replace("missing", "absent")) for name, state in want}
    assert states(bare(recording), path, tmp_path) == in_folder
    shown = section(recording)
    assert MERGED in shown
    assert f"{wording.shorten(str(path))}:4 forward: 15.0 KiB" in shown
    words = {"differs": "its file changed: no such function at these lines",
             "missing": MISSING}  # fmt: skip
    assert shown.count(f"  ({words[state]})\n") == 2
    assert [t["function"] for t in peaks.lines(recording, functions=["Net.forward"])
            ] == ["forward"]  # fmt: skip


def test_cells_of_a_notebook(script, monkeypatch):
    path = "/tmp/ipykernel_1/12345.py"
    assert states(record(script, MODEL, path), path) == {
        ("forward", "missing"), ("main", "missing")
    }  # fmt: skip
    lines = [line + "\n" for line in MODEL.splitlines()]
    monkeypatch.setitem(linecache.cache, path, (len(MODEL), None, lines, path))
    recording = record(script, MODEL, path)
    monkeypatch.delitem(linecache.cache, path)
    assert states(recording, path) == READ


# ---- Hostile and large ----


def test_nothing_of_a_stranger_steers_the_terminal(script, tmp_path):
    path = tmp_path / "\x1b]0;title\x07.py"
    source = "def main():\n    '\x1b[2J\u202e'; allocate(next(at), KIB)\nmain()\n"
    path.write_text(source)
    record(script, source, path).write_pickle(tmp_path / "run.pickle", True)
    snapshot = pickle.loads((tmp_path / "run.pickle").read_bytes())
    evil = "\x1b[31m\n\r\u202eevil"
    for event in snapshot["device_traces"][0]:
        for frame in event["frames"]:
            if frame["name"] == "<module>":
                frame["name"] = evil
    recording = _core.Recording.from_bytes(pickle.dumps(snapshot, protocol=4))
    shown = section(recording, functions=[evil, "main"])
    assert "\\x1b]0;title\\x07.py:1 main" in shown
    assert "'\\x1b[2J\\u202e'; allocate" in shown
    assert "\\x1b[31m\\n\\r\\u202eevil" in shown
    with pytest.raises(memlab.Error) as error:
        section(recording, functions=["none\x1b"])
    for text in (shown.replace("\n", ""), str(error.value)):
        assert text.isprintable()
        assert "\\x1b" in text


def test_a_function_of_very_many_lines(script):
    """Those that hold most are shown, and how many are not."""
    lines = [f"    allocate(next(at), {i + 1} * KIB)\n" for i in range(100)]
    recording = record(script, "def f():\n" + "".join(lines) + "f()\n", "/gone/f.py")
    assert len(peaks.lines(recording)[0]["lines"]) == 100
    shown = section(recording)
    (table,) = [part for part in shown.split("\n\n") if " f: " in part]
    assert "  ... and 60 more lines" in table
    numbers = [int(line.split()[0]) for line in table.splitlines()[3:-1]]
    assert numbers == list(range(62, 102))
    shown = section(recording, functions=["f"])
    assert "more lines" not in shown and "\n     2  1.00 KiB " in shown


def test_source_of_any_depth(script, tmp_path):
    path = tmp_path / "deep.py"
    deep = "def f():\n    (" + "-" * 200_000 + "1)\n"
    recording = record(
        script, "def f():\n    allocate(next(at), KIB)\nf()\n", path,
        lambda path: path.write_text(deep),
    )  # fmt: skip
    for source in (None, tmp_path):
        code = Code(bare(recording) if source else recording, source)
        state = "absent" if source else "missing"
        assert code.split(str(path), "f", [2])[0][-1] == state


# ---- The ways to it ----


def run(*arguments, check=0):
    done = subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == check, done.stderr
    return done


def test_the_command(model, tmp_path):
    recording, path = model
    file = tmp_path / "run.pickle"
    recording.write_pickle(file, True)
    place = wording.shorten(str(path))
    shown = run("report", "--full", file).stdout
    assert KEPT.replace("model.py", place) in shown
    # As the program's own process shows it.
    assert shown == report.text(recording)
    shown = run("report", file, "-f", "main", "--function", "Other.forward").stdout
    assert f"{place}:15 main" in shown and f"{place}:10 Other.forward" in shown
    assert "Net.forward:" not in shown
    answer = json.loads(run("report", file, "--json", "-f", "main").stdout)
    assert answer["devices"][0]["lines"] == peaks.lines(recording, functions=["main"])
    error = run("report", file, "--json", "-f", "nothing", check=1).stderr
    assert error.startswith("memlab: no function nothing ") and error.count("\n") == 1


@pytest.mark.parametrize("width", [40, 60, 79])
def test_a_narrow_terminal(model, tmp_path, width):
    file = tmp_path / "run.pickle"
    model[0].write_pickle(file, True)
    shown = in_a_terminal(width, "report", file, env={"NO_COLOR": "1"})
    assert all(len(line) <= width for line in shown.splitlines())
    assert "".join(shown.split()) == "".join(run("report", file).stdout.split())


def test_from_python(script, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    snapshot = memlab.MemorySnapshot(source="script").start()
    script.emit("segment_alloc", SEGMENT, 2 * MIB)
    code = compile("def f(allocate):\n    allocate()\n", str(path), "exec")
    exec(code, names := {})
    names["f"](lambda: script.emit("alloc", SEGMENT, KIB))
    snapshot.stop()
    (table,) = snapshot.lines(functions=["f"])
    assert table["function"] == "f" and table["source"] == "differs"
    assert table["lines"] == [{
        "line": 2, "code": None, "at_peak_bytes": KIB, "backward_bytes": 0,
        "peak_bytes": KIB, "allocated_bytes": KIB, "left_bytes": KIB, "allocations": 1,
    }]  # fmt: skip
    assert snapshot.lines(0) == report.report(snapshot.data())["devices"][0]["lines"]
    with pytest.raises(memlab.Error):
        snapshot.lines(functions=["g"])
    with pytest.raises(IndexError):
        snapshot.lines(7)


def test_without_allocations(script):
    with memlab.MemorySnapshot(source="script") as snapshot:
        script.emit("segment_alloc", SEGMENT, 2 * MIB)
    assert snapshot.data().lines(0)["functions"] == []
    assert snapshot.lines() == []
    assert "Line by line" not in snapshot.summary()


STREAMS = f"""\
Line by line, the functions whose own lines hold most of the peak
{LEGEND}
  truth.py:65 step: 938 MiB (100.0 %) of the peak, by its own lines
  ({MISSING})
  line  at peak     peak  allocated     left
    65  938 MiB  938 MiB   4.24 GiB  794 MiB
"""


def test_a_real_trace_as_text():
    """A stranger's: no source, and one line that does it all.  On the H200 the peak of
    torch.cuda.memory_stats() was 983655936, what was left 833025536, in 1200
    allocations."""
    data = gzip.decompress((DATA / "streams_expandable.pickle.gz").read_bytes())
    recording = _core.Recording.from_bytes(data)
    assert section(recording) == STREAMS
    (table,) = peaks.lines(recording)
    (line,) = table["lines"]
    assert line["at_peak_bytes"] == line["peak_bytes"] == 983655936
    assert (line["left_bytes"], line["allocations"]) == (833025536, 1200)
