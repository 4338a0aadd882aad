"""Line tables as text: byte for byte those of pytorch_memlab where it is right."""

import linecache
import math
import os
import pty
import re
import subprocess
import sys

import pytest
from scripted_lines import profiler_of
from shown_tables import KIB, MIB, TIB, codes, golden, table, tables

from memlab._text.line_text import Table, Tables, readable_size

# ---- Text ----


@pytest.mark.cuda
def test_the_table_of_the_readme(phantom_run, tmp_path):
    """The functions of the README's output; its code has another `outer`, which does not
    give that output.

    Linear(100, 100) is 40,000 bytes in blocks of 512, 40,448, and 400 in one, 512: 40 KiB.
    What `linear` and `linear2` hold stays, and a small block's segment is 2 MiB."""
    program = """\
import torch
from memlab import LineProfiler

def inner():
    torch.nn.Linear(100, 100).cuda()

def outer():
    linear = torch.nn.Linear(100, 100).cuda()
    linear2 = torch.nn.Linear(100, 100).cuda()
    inner()

with LineProfiler(outer, inner) as profiler:
    outer()
profiler.print_stats()
"""
    shown = phantom_run(program).stdout
    assert re.sub("(?m) +$", "", shown) == golden("readme.txt")
    # The notebook shows the blanks: the code is as wide as its longest line with its end.
    widths = {len(line) for line in shown.split("\n")[2:9]}
    assert widths == {len("active_bytes reserved_bytes line  ") + 46 + 1}


def test_the_tables_of_the_demo_notebook(demo):
    assert repr(demo) == golden("demo_xy.txt") + "\n"


def test_what_pytorch_memlab_makes_of_odd_functions(odd):
    """pandas from 1.2 on has one blank before the code, the README and the notebook two."""
    newer = golden("odd.txt")
    width = len("active_bytes reserved_bytes active_bytes line ")
    older = re.sub(rf"(?m)^([^#\n].{{{width - 1}}})", r"\1 ", newer)
    assert len(older) - len(newer) == 3 + 8 + 3 + 1
    assert repr(odd) == older


def test_no_data():
    assert repr(tables()) == str(tables()) == "No data collected\n"
    assert tables()._repr_html_() == "<p>No data collected</p>"
    assert not tables()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0.00B"),
        (1, "1.00B"),
        (1023, "1023.00B"),
        (1024, "1.00K"),
        (1048575, "1024.00K"),
        (MIB, "1.00M"),
        (12345678, "11.77M"),
        (1 << 30, "1.00G"),
        (TIB, "1.00T"),
        (1 << 50, "1.00P"),
        (1 << 60, "1024.00P"),
        (-1, "-1.00B"),
        (-1023, "-1023.00B"),
        (-2048, "-2.00K"),
        (-1048575, "-1024.00K"),
        (math.nan, ""),
    ],
)
def test_sizes(count, said):
    assert readable_size(count) == said


def test_counts_are_whole_numbers_and_blank_where_a_line_did_not_run():
    """pytorch_memlab shows 24112.0 and NaN there: pandas has no column of both."""
    code = codes("def f(x):\n    if x:\n        g()\n    h()\n", "f.py")["f"]
    columns = ("active.all.peak", "num_ooms")
    shown = repr(tables(table(code, {1: (0, 0), 2: (24112, 1), 4: (3, 0)}, columns),
                        columns=columns))  # fmt: skip
    assert shown == (
        "## f\n\n"
        "active num_ooms line  code        \n"
        "   all                            \n"
        "  peak                            \n"
        "     0        0    1  def f(x):   \n"
        " 24112        1    2      if x:   \n"
        "                   3          g() \n"
        "     3        0    4      h()     \n"
    )


def test_delta_and_calls_with_their_sign():
    code = codes("def f(x):\n    del x\n", "f.py")["f"]
    rows = [(1, 2, 0, ()), (2, 2, -4096, ())]
    shown = Tables([Table("f", code, rows, ("delta", "calls"))], ("delta", "calls"))
    assert repr(shown) == (
        "## f\n\n"
        " delta calls line  code      \n"
        "                             \n"
        "                             \n"
        " 0.00B     2    1  def f(x): \n"
        "-4.00K     2    2      del x \n"
    )
    assert "-4.00K" in shown._repr_html_()


def test_notes_stand_below(demo):
    shown = tables(*demo._tables, notes=["one < two", "three"])
    assert repr(shown) == repr(demo) + "\none < two\n\nthree\n"
    assert shown._repr_html_().endswith("<p>one &lt; two</p>\n<p>three</p>")


def test_twins_are_told_apart_and_others_have_their_name_alone():
    source = "def f():\n    return 1\n"
    one, two = codes(source, "one.py")["f"], codes("\n" + source, "two <2>.py")["f"]
    other = codes("def g(): pass\n", "g.py")["g"]
    shown = tables(table(one, {1: (0, 0)}), table(other, {1: (0, 0)}),
                   table(two, {2: (0, 0)}))  # fmt: skip
    titles = re.findall("(?m)^## (.*)$", repr(shown))
    assert titles == ["f (one.py:1)", "g", "f (two <2>.py:2)"]
    assert "f (two &lt;2&gt;.py:2)" in shown._repr_html_()


DECORATED = """\
import functools
def plain(f): return f

class Net:
    @plain
    # a comment
    @functools.partial(
        plain,
    )
    async def forward(self, x=
                      '''
in the first column
'''):
        return x

@plain
def one(): return 1
"""


def test_a_call_begins_in_the_line_of_def_below_decorators():
    """Python has it in the line of the first decorator."""
    code = codes(DECORATED, "decorated.py")
    forward = code["Net.forward"]
    assert forward.co_firstlineno == 5
    made = table(forward, {5: (1, 2), 14: (3, 4)})
    assert made.values == {10: [1, 2], 14: [3, 4]}
    assert made.lines[0][0] == 5 and "async def forward" in dict(made.lines)[10]


def test_a_body_in_the_line_of_def_counts_once():
    one = codes(DECORATED, "decorated.py")["one"]
    columns = ("calls", "delta", "active_bytes.all.peak")
    rows = [(16, 2, 100, (5,)), (17, 2, 512, (7,))]
    assert Table("one", one, rows, columns).values == {17: [2, 612, 7]}


@pytest.mark.parametrize(
    "now", ["", "x\n", "def f(:\n", "'''\n" * 9, "\x00\n" * 5, "if 1:\n  (\n" * 4]
)
def test_a_file_that_changed_does_not_fail(tmp_path, now):
    path = tmp_path / "changed.py"
    path.write_text("\n\n@print\ndef f():\n    pass\n")
    code = codes(path.read_text(), str(path))["f"]
    linecache.cache.pop(str(path))
    path.write_text(now)
    made = table(code, {3: (0, 0), 5: (KIB, MIB)})
    shown = tables(made)
    assert "1.00K          1.00M    5" in repr(shown)
    assert "1.00K" in shown._repr_html_()


def test_the_source_is_that_which_ran(tmp_path):
    """Though its file is edited while the program runs."""
    path = tmp_path / "edited.py"
    space = {}
    path.write_text("x = 1\n\ndef f():\n    return 'mine'\n")
    exec(compile(path.read_text(), str(path), "exec"), space)
    profiler = profiler_of(space["f"])
    path.write_text("# A line more, and\n# another.\ndef g():\n    return 'other'\n")
    with profiler:
        space["f"]()
    shown = repr(profiler.display(columns="calls"))
    assert shown.startswith("## f\n") and "other" not in shown
    assert re.findall("(?m)^ *1 +([34].*?) *$", shown) == [
        "3  def f():", "4      return 'mine'"
    ]  # fmt: skip
    # What is registered anew, after a reload for one, is the new text.
    exec(compile(path.read_text(), str(path), "exec"), space)
    with profiler_of(space["g"]) as profiler:
        space["g"]()
    assert "return 'other'" in repr(profiler.display(columns="calls"))


def test_the_lines_of_a_module_are_numbered_from_one(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("x = 1\n\ny = 2\n")
    code = compile(path.read_text(), str(path), "exec")
    with profiler_of(code) as profiler:
        exec(code, {})
    shown = repr(profiler.display(columns="calls"))
    assert re.findall("(?m)^ *1 +([123].*?) *$", shown) == ["1  x = 1", "3  y = 2"]


def test_code_that_was_never_in_a_file():
    code = compile("\n\ndef f():\n    pass\n", "<nowhere>", "exec").co_consts[0]
    shown = repr(tables(table(code, {3: (0, 0), 4: (KIB, MIB)})))
    assert shown.endswith(
        "       0.00B          0.00B    3      \n       1.00K          1.00M    4      \n"
    )


@pytest.mark.cuda
def test_what_is_asked_for_is_what_is_shown(phantom_run):
    """Functions by themselves, by name and in lists, columns by name, and the stream that
    is sys.stdout when print_stats() is called."""
    phantom_run(
        """\
import contextlib, io, re
import pytest, torch
from memlab import LineProfiler

class Net:
    @torch.no_grad()
    def forward(self):
        return torch.empty(1000, device="cuda")

def f():
    return torch.empty(2000, device="cuda")

def never():
    pass

net = Net()
with LineProfiler(f, net.forward, never) as profiler:
    f(), net.forward()

def titles(func=None, **columns):
    return re.findall("(?m)^## (.*)$", str(profiler.display(func, **columns)))

assert titles() == titles([f, "never", Net.forward]) == ["f", "Net.forward"]
assert titles(f) == titles("f") == titles(["f"]) == titles((f, "f")) == ["f"]
assert titles(Net.forward) == titles(net.forward) == titles("Net.forward") == ["Net.forward"]
assert titles(["Net.forward", f]) == ["Net.forward", "f"]
# Registered and not run: there is nothing to say; not registered: a mistake.
assert str(profiler.display(never)) == str(profiler.display("never")) == "No data collected\\n"
assert profiler.display("never")._repr_html_() == "<p>No data collected</p>"
for unknown in "g", print, ["f", "g"]:
    with pytest.raises(ValueError, match="is not profiled; these are: f, Net.forward, never"):
        profiler.display(unknown)
for unknown in "active_bytes", "active_bytes.all", "active_bytes.all.pique", "line":
    with pytest.raises(ValueError, match="is not a column"):
        profiler.display(columns=(unknown,))

for columns in ("allocated_bytes.all.current",), "allocated_bytes.all.current":
    shown = str(profiler.display("f", columns=columns))
    # 8,000 bytes in 16 blocks of 512.
    assert shown.split("\\n")[2:5] == [
        line.ljust(len(shown.split("\\n")[2]))
        for line in ("allocated_bytes line  code", " " * 12 + "all", "        current")
    ]
    assert "          8.00K   11      return torch" in shown
torch.cuda.memory_stats()
for column in torch.cuda.memory_stats():
    assert titles(f, columns=column) == ["f"], column

for stream in io.StringIO(), io.StringIO():
    with contextlib.redirect_stdout(stream):
        profiler.print_stats()
    assert stream.getvalue() == str(profiler.display())
own = io.StringIO()
with contextlib.redirect_stdout(stream):
    profiler.print_stats("f", "delta", own)
assert own.getvalue() == str(profiler.display("f", "delta"))
"""
    )


# ---- Where it is written ----

PROGRAM = """\
import sys
from memlab._text import line_text

def f(x):
    return "ünï" + x

rows = [(4, 1, 0, (0,)), (5, 1, 0, (1024,))]
columns = ("active_bytes.all.peak",)
tables = line_text.Tables([line_text.Table("f", f.__code__, rows, columns)], columns)
if sys.argv[1:] == ["plain"]:
    sys.stdout.write(repr(tables))
else:
    line_text.write(tables, sys.stdout)
"""


def on_a_terminal(program, *arguments, **env):
    """What PROGRAM, a path, writes to a terminal."""
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1", **env}
    environment = {
        name: value for name, value in environment.items() if value is not None
    }
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(program), *arguments], stdout=theirs, env=environment
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            # The kernel's way to say that the other side is closed.
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def without_colour(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.fixture
def plain(program):
    return on_a_terminal(program, "plain")


def trimmed(text):
    """TEXT without the blanks that align the code: beyond a terminal's width, each of them
    would show as an empty line.
    """
    return re.sub("(?m) +$", "", text)


def test_colour_on_a_terminal_and_nothing_else_changes(program, plain):
    pytest.importorskip("rich", reason="rich is not installed")
    written = on_a_terminal(program, NO_COLOR=None, COLUMNS="20")
    assert trimmed(without_colour(written)) == trimmed(plain)
    assert "\x1b[1;31m       1.00K\x1b[0m" in written  # the most of its column
    assert "\x1b[2m       0.00B\x1b[0m" in written
    assert '      return "ünï" + x\n' in written


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"NO_COLOR": None, "TERM": "dumb"}])
def test_no_colour_where_the_user_wants_none(program, plain, env):
    assert on_a_terminal(program, **env) == trimmed(plain)


@pytest.mark.parametrize(
    "rich",
    [
        "raise ImportError('no rich')",
        "raise RuntimeError('broken')",
        "class Console: pass",
        "class Console:\n    def __init__(self, file): pass\n    capture = None",
    ],
)
def test_another_rich_is_no_reason_to_fail(program, plain, rich):
    package = program.parent / "rich"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "console.py").write_text(rich)
    # The folder of the program comes first in sys.path.
    assert on_a_terminal(program, NO_COLOR=None) == trimmed(plain)


def test_a_pipe_gets_the_text_alone(program, plain):
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "FORCE_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == plain


def test_letters_that_a_stream_has_not(program, plain):
    written = on_a_terminal(
        program, PYTHONUTF8="0", PYTHONIOENCODING="ascii", NO_COLOR="1"
    )
    assert written == trimmed(plain).replace("ü", "\\xfc").replace("ï", "\\xef")


@pytest.mark.cuda
def test_colour_of_decorated_functions(device_environment, tmp_path):
    """What @profile_every and @profile show is in colour as well."""
    pytest.importorskip("rich", reason="rich is not installed")
    program = tmp_path / "program.py"
    program.write_text(
        "import memlab, torch\n"
        "@memlab.profile_every(2, columns='delta')\n"
        "def g(): return torch.empty(1000, device='cuda')\n"
        "@memlab.profile\n"
        "def f(): return torch.empty(1000, device='cuda')\n"
        "g(), g(), f()\n"
    )
    written = on_a_terminal(program, **{**device_environment, "NO_COLOR": None})
    for title in "g", "f":
        assert f"\x1b[2m## \x1b[0m\x1b[1m{title}\x1b[0m" in written
    # 4,000 bytes are 8 blocks of 512: twice in g(), and the tuple keeps all three.
    assert "\x1b[1;31m8.00K\x1b[0m" in written
    assert "\x1b[1;31m      12.00K\x1b[0m" in written
