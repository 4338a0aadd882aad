"""Line tables as text and HTML: byte for byte those of pytorch_memlab where it is right."""

import html
import html.parser
import linecache
import math
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_lines import profiler_of

from memlab._text.line_text import Table, Tables, readable_size

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "pytorch_memlab"
DEFAULT = ("active_bytes.all.peak", "reserved_bytes.all.peak")
KIB, MIB, TIB = 1 << 10, 1 << 20, 1 << 40


def golden(name):
    return (GOLDEN / name).read_text()


def codes(source, path):
    """The code objects of the functions in SOURCE, which is in PATH, by qualified name."""
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    found = {}

    def look(code, outer=""):
        for inner in code.co_consts:
            if hasattr(inner, "co_code"):
                found[outer + inner.co_name] = inner
                look(inner, f"{outer}{inner.co_name}.")

    look(compile(source, path, "exec"))
    return found


def table(code, rows, columns=DEFAULT, name=None):
    """The table of CODE with ROWS: {line: figures}."""
    rows = [(line, 1, 0, tuple(figures)) for line, figures in sorted(rows.items())]
    return Table(name or code.co_name, code, rows, columns)


def tables(*these, columns=DEFAULT, notes=()):
    return Tables(list(these), columns, notes)


@pytest.fixture
def demo():
    """The first tables of pytorch_memlab's notebook, of its figures.

    Linear(1000, 100): 400,000 bytes in blocks of 512 are 400,384, with 512 of the bias
    400,896, 391.5 KiB."""
    source = (
        "import torch\n\n"
        "def x():\n    torch.nn.Linear(100, 100).cuda()\n    \n"
        "def y(gpu=0):\n    torch.nn.Linear(1000, 100).cuda(device=gpu)\n"
    )
    code = codes(source, "demo.py")
    return tables(
        table(code["x"], {3: (0, 0), 4: (40 * KIB, 2 * MIB)}),
        table(code["y"], {6: (0, 2 * MIB), 7: (400_896, 2 * MIB)}),
    )


@pytest.fixture
def odd():
    """The figures that pytorch_memlab was given for odd.txt and odd.html."""
    columns = (*DEFAULT, "active_bytes.all.allocated")
    code = codes(golden("odd_source.txt"), "odd.py")
    forward = {
        5: (0, 2 * MIB, 0),
        9: (1023, 2 * MIB, 512),
        11: (12345678, 24 * MIB, 1048575),
        12: (12345678, 24 * MIB, 0),
    }
    return tables(
        table(code["Net.forward"], forward, columns, "Net.forward"),
        table(code["one"], {15: (24 * MIB, 48 * MIB, TIB)}, columns),
        columns=columns,
    )


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
    with pytest.raises(ValueError, match="is no column"):
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


# ---- HTML ----


class Page(html.parser.HTMLParser):
    """What HTML shows: titles, and for every row of every table its cells, each with its
    text and its bar, (colour, per cent); fails where elements do not nest."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.titles, self.rows, self.style = [], [], [], {}
        self.styles, self.cell = [], None
        for rule, body in re.findall(r"([^{}>]+)\{([^}]*)\}", text):
            for selector in rule.split(","):
                self.style[selector.strip().lstrip("#")] = body
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.stack.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            style = attributes.get("style") or self.style.get(attributes.get("id"), "")
            bar = re.search(r"linear-gradient\(90deg, ?(#\w{6}) ([\d.]+)%", style)
            self.cell = [tag, "", bar and (bar[1], float(bar[2]))]
            self.styles.append(style)
        elif tag == "h3":
            self.titles.append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag
        if tag in ("td", "th"):
            kind, text, bar = self.cell
            self.rows[-1].append((kind, text.rstrip(), bar))
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[1] += data
        elif "h3" in self.stack:
            self.titles[-1] += data
        elif "style" not in self.stack:
            assert data.strip() == ""


def test_html_shows_what_that_of_the_demo_notebook_shows(demo):
    """Titles, headers, cells, colours and lengths of bars; pandas said it in classes."""
    theirs, ours = Page(golden("demo_xy.html")), Page(demo._repr_html_())
    assert ours.titles == theirs.titles == ["x", "y"]
    assert ours.rows == theirs.rows
    assert ("td", "40.00K", ("#4878d0", 10.1)) in ours.rows[4]


def test_html_shows_what_pytorch_memlab_makes_of_odd_functions(odd):
    # It writes code as it is, and a browser takes what is in it for markup.
    code = golden("odd.html")
    for markup in " & ", "<b>", "<i>", "x < 2":
        assert markup in code
        code = code.replace(markup, html.escape(markup))
    theirs, ours = Page(code), Page(odd._repr_html_())
    assert ours.titles == theirs.titles == ["Net.forward", "one"]
    assert ours.rows == theirs.rows
    assert ("td", '            return "<i>"', None) in ours.rows[8]


def test_a_bar_for_every_figure_up_to_the_most_of_all_functions(odd):
    """The third column goes up to 1 TiB, which is in the table of the other function."""
    rows = Page(odd._repr_html_()).rows
    bars = [[bar for _, _, bar in row] for row in rows if row[0][0] == "td"]
    colours = ["#4878d0", "#ee854a", "#6acc64"]
    assert bars[-1] == [(colour, 99.0) for colour in colours] + [None, None]
    # 12,345,678 of 24 MiB, 24 MiB of 48 and 1,048,575 of 1 TiB, each 99 % at most.
    assert bars[6] == [*zip(colours, (48.6, 49.5, 0.0)), None, None]
    assert bars[0] == [
        None,
        (colours[1], 4.1),
        None,
        None,
        None,
    ]  # 0 B, 2 of 48 MiB, 0 B


def test_ten_colours_come_round():
    code = codes("def f(): pass\n", "f.py")["f"]
    columns = tuple(
        f"{count}.{pool}.peak"
        for count in ("active_bytes", "allocated_bytes", "requested_bytes", "segment")
        for pool in ("all", "large_pool", "small_pool")
    )
    shown = tables(table(code, {1: range(1, 13)}, columns), columns=columns)
    bars = [bar for _, _, bar in Page(shown._repr_html_()).rows[-1]][:12]
    assert len({colour for colour, _ in bars}) == 10
    assert bars[10:] == bars[:2]


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


def test_colour_on_a_terminal_and_nothing_else_changes(program, plain):
    pytest.importorskip("rich", reason="rich is not installed")
    written = on_a_terminal(program, NO_COLOR=None, COLUMNS="20")
    assert without_colour(written) == plain
    assert "\x1b[1;31m       1.00K\x1b[0m" in written  # the most of its column
    assert "\x1b[2m       0.00B\x1b[0m" in written
    assert '      return "ünï" + x \n' in written


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"NO_COLOR": None, "TERM": "dumb"}])
def test_no_colour_where_the_user_wants_none(program, plain, env):
    assert on_a_terminal(program, **env) == plain


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
    assert on_a_terminal(program, NO_COLOR=None) == plain


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
    assert written == plain.replace("ü", "\\xfc").replace("ï", "\\xef")


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


# ---- In a browser ----

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# JupyterLab's colours of page and text.
THEMES = {"light": ("#ffffff", "rgba(0, 0, 0, 0.87)"), "dark": ("#111111", "rgba(255, 255, 255, 0.87)")}  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_above_the_bars_and_wide_code_scrolls(browser, odd, theme):
    wide = codes(f"def f():\n    return {' + '.join(['1'] * 200)}\n", "wide.py")["f"]
    columns = (*DEFAULT, "active_bytes.all.allocated")
    wide = table(wide, {1: (0, 0, 0), 2: (KIB, MIB, TIB)}, columns)
    shown = tables(*odd._tables, wide, columns=columns)
    ground, ink = THEMES[theme]
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.set_content(
        f"<body style='background: {ground}; color: {ink}'>{shown._repr_html_()}</body>"
    )
    seen = page.evaluate("""() => {
        const width = document.documentElement
        const cells = [...document.querySelectorAll("td")].map((cell) => {
            const style = getComputedStyle(cell), range = document.createRange()
            range.selectNodeContents(cell)
            const box = cell.getBoundingClientRect(), text = range.getBoundingClientRect()
            return {bar: style.backgroundImage, size: style.backgroundSize,
                    colour: style.color, below: box.bottom - text.bottom,
                    lines: Math.round(text.height / 16)}
        })
        return {fits: width.scrollWidth <= width.clientWidth, cells}
    }""")
    page.close()
    assert seen["fits"]
    bars = [cell for cell in seen["cells"] if "gradient" in cell["bar"]]
    assert len(bars) == 1 + 3 + 3 + 2 + 3 + 3
    for cell in bars:
        # Nothing is painted behind the text, which has the theme's own colour.
        assert cell["size"] == "100% 4px" and cell["below"] >= 4
        assert cell["colour"] == ink
    assert {cell["lines"] for cell in seen["cells"]} <= {0, 1}
