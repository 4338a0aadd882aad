"""%mlrun and %%mlrun in a real Jupyter kernel and in IPython without one.

The kernel has a CUDA device, so the figures are those of c10's caching allocator: it
rounds a tensor up to 512 bytes, and takes 2 MiB for the small ones and 20 MiB for those
from 1 to 10 MiB.
"""

import re
import textwrap
from pathlib import Path

import pytest
from jupyter_kernel import ran, text, usage_error

pytestmark = pytest.mark.cuda

LINEAR = """\
def linear(inputs=100):
    layer = torch.nn.Linear(inputs, 100).cuda()
    return layer
"""


def table(title, *lines, columns=("active_bytes.all.peak", "reserved_bytes.all.peak")):
    """A table of LINES without the blanks that align it."""
    headers = zip(
        *(name.split(".") if "." in name else (name, "", "") for name in columns)
    )
    rows = [" ".join(header) for header in headers]
    rows[0] += " line code"
    return "\n".join([f"## {title}", "", *(r.strip() for r in rows), *lines])


def squeezed(text):
    """TEXT without the blanks that align it, and the newline that IPython leaves out."""
    return re.sub(" +", " ", re.sub("(?m)^ +| +$", "", text)).rstrip("\n")


def linear_table(first):
    """That of LINEAR in a kernel with an empty cache, from line FIRST on.

    100 * 100 * 4 is 40,000 bytes, in blocks of 512: 40,448; with the bias' 512: 40 KiB."""
    return table(
        "linear",
        f"0.00B 0.00B {first} def linear(inputs=100):",
        f"40.00K 2.00M {first + 1} layer = torch.nn.Linear(inputs, 100).cuda()",
        f"40.00K 2.00M {first + 2} return layer",
    )


LINEAR_TABLE = linear_table(1)


def test_a_statement_shows_the_table_of_a_function(kernel):
    ran(kernel.run(LINEAR))
    shown = kernel.run("%mlrun -f linear linear()")
    assert squeezed(text(shown)) == LINEAR_TABLE
    assert shown.result["text/html"].startswith("<h3>")
    assert (shown.out, shown.err, shown.displays) == ("", "", [])


def test_a_function_defined_in_the_cell_itself(kernel):
    """Its lines are numbered as the cell shows them, that of the magic first."""
    shown = kernel.run(f"%%mlrun -f linear\n{LINEAR}\nlinear()")
    assert squeezed(text(shown)) == linear_table(2)
    ran(kernel.run("torch.cuda.empty_cache()"))
    shown = kernel.run(f"%%mlrun -f linear\n\n  \n{LINEAR}\nlinear()")
    assert squeezed(text(shown)) == linear_table(4)


def test_a_cell_shows_its_first_screen_above_the_tables(kernel):
    """With the verdict; and the place of the peak by a name that is the same every day."""
    shown = ran(kernel.run(f"%%mlrun -f linear\n{LINEAR}\nlinear()"))
    [screen] = shown.displays
    page = screen["text/html"]
    assert "Peak on cuda:0: 40.0 KiB allocated" in page and "Verdict: Fits" in page
    assert "at &lt;cell&gt;:3 linear" in page and "ipykernel" not in page
    for options in ("-q", "-r", "-qr"):
        shown = ran(kernel.run(f"%%mlrun {options} -f linear\nlinear()"))
        assert shown.displays == []


def test_the_first_screen_is_of_the_device_that_is_asked_for(kernel):
    shown = ran(kernel.run("%%mlrun -g cpu\nheld = torch.zeros(1 << 20)"))
    [screen] = shown.displays
    assert "Peak on cpu:0: 4.00 MiB allocated" in screen["text/html"]


def test_statements_keep_their_blanks_quotes_and_signs(kernel):
    ran(kernel.run(LINEAR))
    shown = kernel.run(
        "%mlrun -f linear kept = [linear( ), \"it's  -c {1} $HOME\", {'a':  -1}, '--q']"
    )
    assert squeezed(text(shown)) == LINEAR_TABLE
    said = ran(kernel.run("kept[1:]")).result["text/plain"]
    assert eval(said) == ["it's  -c {1} $HOME", {"a": -1}, "--q"]


def test_options_after_the_statement_are_the_statements(kernel):
    ran(kernel.run("class Net:\n    def f(self): pass\nc = q = f = 1\nn = Net()\n"))
    shown = kernel.run("%mlrun -f Net.f y = 3 -c -q -f; n.f()")
    assert squeezed(text(shown)).startswith("## Net.f")
    assert text(kernel.run("y")) == "0"


def test_names_stay_bound_and_functions_see_them(kernel):
    ran(kernel.run("def seen(): return torch.empty(size, device='cuda')"))
    shown = kernel.run("%%mlrun -f seen\nsize = 1000\nmade = seen()")
    # 4,000 bytes are 8 blocks of 512.
    assert "4.00K          2.00M    1  def seen()" in text(shown)
    assert text(kernel.run("size, made.shape")) == "(1000, torch.Size([1000]))"


def test_a_statement_may_stand_in_the_line_of_a_cell(kernel):
    ran(kernel.run(LINEAR))
    shown = kernel.run("%%mlrun -f linear first = linear()\nsecond = first")
    assert squeezed(text(shown)) == LINEAR_TABLE
    assert text(kernel.run("second is first")) == "True"


def test_a_function_defined_anew_is_the_one_that_counts(kernel):
    ran(kernel.run("def f():\n    return torch.empty(10, device='cuda')\nold = f"))
    shown = kernel.run("%mlrun -f f -D -c calls f()")
    assert text(shown).count("## f") == 1
    ran(kernel.run("def f():\n\n    return torch.empty(1000, device='cuda')"))
    shown = kernel.run("%mlrun -f f -D -c allocated_bytes.all.peak f()")
    assert squeezed(text(shown)) == table(
        "f",
        "0.00B 1 def f():",
        "2",
        "4.00K 3 return torch.empty(1000, device='cuda')",
        columns=["allocated_bytes.all.peak"],
    )
    # Both, where both ran: told apart by where they are.
    shown = kernel.run(
        "%%mlrun -f f -D -c calls\nold()\nf()\ndef f():\n    return 3\nf()\nold()"
    )
    titles = re.findall(r"(?m)^## f \((.+):1\)$|^## f \((.+):4\)$", text(shown))
    assert len(titles) == 2 and titles[0] != titles[1], text(shown)


def test_several_functions_methods_and_names_in_modules(kernel):
    cell = """\
%%mlrun -f f --function Net.forward --func=textwrap.dedent -f outer.<locals>.inner -D -c calls
import textwrap
def f(): return 1
class Net:
    @torch.no_grad()
    def forward(self):
        return f()
def outer():
    def inner():
        return f()
    return inner()
Net().forward()
outer()
_ = textwrap.dedent("a")
"""
    shown = kernel.run(cell)
    titles = re.findall("(?m)^## (.+)$", text(shown))
    assert titles == ["f", "Net.forward", "dedent", "outer.<locals>.inner"]
    assert "1    6      def forward(self):" in text(shown)


def test_columns_and_no_default_columns(kernel):
    ran(kernel.run(LINEAR))
    shown = kernel.run("%mlrun -f linear -c delta -c 'calls' x = linear()")
    assert squeezed(text(shown)) == table(
        "linear",
        "0.00B 0.00B 0.00B 1 1 def linear(inputs=100):",
        "40.00K 2.00M 40.00K 1 2 layer = torch.nn.Linear(inputs, 100).cuda()",
        "40.00K 2.00M 0.00B 1 3 return layer",
        columns=["active_bytes.all.peak", "reserved_bytes.all.peak", "delta", "calls"],
    )
    shown = kernel.run("%mlrun -D --column=delta --function linear linear()")
    assert squeezed(text(shown)) == table(
        "linear",
        "0.00B 1 def linear(inputs=100):",
        "40.00K 2 layer = torch.nn.Linear(inputs, 100).cuda()",
        "0.00B 3 return layer",
        columns=["delta"],
    )


def test_quiet_shows_nothing_and_leaves_no_result(kernel):
    ran(kernel.run(LINEAR))
    for options in "-q", "--quiet":
        shown = ran(kernel.run(f"%mlrun {options} -f linear y = linear()"))
        assert (shown.out, shown.err, shown.displays, shown.result) == (
            "",
            "",
            [],
            None,
        )
        assert text(kernel.run("y.in_features, globals().get('_', '')")) == "(100, '')"
        ran(kernel.run("%reset -f out"))
    shown = kernel.run("%%mlrun -q -f linear\nlinear()\n1 / 0")
    assert shown.error[0] == "ZeroDivisionError"
    assert shown.displays == []


def test_the_profiler_itself(kernel):
    ran(kernel.run(LINEAR))
    ran(kernel.run("profiler = %mlrun -qr -f linear linear()"))
    assert text(kernel.run("type(profiler)")) == "memlab._lines.lines.LineProfiler"
    assert squeezed(text(kernel.run("profiler.display()"))) == LINEAR_TABLE
    assert text(kernel.run("profiler.enabled")) == "False"
    ran(kernel.run("profiler = %mlrun --return-profiler -f linear linear()"))
    shown = kernel.run("profiler.print_stats(columns='calls')")
    assert "1    2      layer" in shown.out


def test_a_device(kernel):
    cell = "%%mlrun -f f -g {} -D -c allocated_bytes.all.peak\n" + (
        "def f():\n"
        "    host = torch.empty(1000, dtype=torch.float64)\n"
        "    return torch.empty(1000, device='cuda')\n"
        "f()"
    )
    wanted = {
        "cpu": ("0.00B", "7.81K", "7.81K"),  # 8,000 B
        "0": ("0.00B", "0.00B", "4.00K"),
        "cuda": ("0.00B", "0.00B", "4.00K"),
    }
    for device, figures in wanted.items():
        shown = kernel.run(cell.format(device))
        assert tuple(re.findall(r"(?m)^ *(\S+)    \d", text(shown))) == figures
    assert "neptune" in usage_error(kernel.run("%mlrun -g neptune 1"))
    said = usage_error(kernel.run("%mlrun -g 77 1"))
    assert said.startswith("there is no cuda:77, torch sees ")


def test_the_table_in_a_file_has_the_same_columns(kernel):
    ran(kernel.run(LINEAR))
    ran(kernel.run("run, folder = 3, 'a folder'\nimport os; os.makedirs(folder)"))
    shown = kernel.run(
        "%mlrun -f linear -D -c calls -T \"{folder}/lines {run}.txt\" linear(); x = '{run}'"
    )
    written = (kernel.folder / "a folder" / "lines 3.txt").read_text()
    assert written == text(shown) + "\n"
    assert "calls line" in written and "peak" not in written
    assert text(kernel.run("x")) == "'{run}'"
    shown = kernel.run("ran = False\n%mlrun -T nowhere/lines.txt ran = True")
    assert "nowhere/lines.txt" in usage_error(shown)
    assert text(kernel.run("ran")) == "False"


def test_a_full_disk_costs_the_file_of_the_tables_alone(kernel):
    ran(kernel.run(LINEAR))
    shown = kernel.run("%mlrun -f linear -T /dev/full linear()")
    assert "## linear" in text(shown)
    told = "the tables could not be written to '/dev/full': No space left on device"
    assert told in shown.err
    # The code's own error is the one that arrives.
    assert kernel.run("%mlrun -f linear -T /dev/full linear() / 0").error[0] == "TypeError"


def test_what_is_not_there_is_named(kernel):
    ran(kernel.run("ran = False"))
    for line, said in (
        ("-f nowhere ran = True", "Could not find function 'nowhere'"),
        ("-f torch.nowhere ran = True", "Could not find function 'torch.nowhere'"),
        ("-f no.where ran = True", "Could not find function 'no.where'"),
        ("-c active_bytes.peak ran = True", "near it are active_bytes.all.peak"),
        ("-c nothing ran = True", "'nothing' is not a column"),
        ("-D ran = True", "no column to show. There are delta, calls"),
        ("-x ran = True", "option -x not recognized; %mlrun? shows the options"),
        ("-f", "option -f requires argument"),
    ):
        assert said in usage_error(kernel.run(f"%mlrun {line}"))
    assert text(kernel.run("ran")) == "False"


def test_an_exception_shows_what_ran_and_its_own_traceback(kernel):
    cell = (
        f"%%mlrun -f linear -T lines.txt\n{LINEAR}linear()\nraise RuntimeError('here')"
    )
    shown = kernel.run(cell)
    assert shown.error == ("RuntimeError", "here")
    screen, tables = shown.displays
    assert "Verdict: Fits" in screen["text/html"]
    assert squeezed(tables["text/plain"]) == linear_table(2)
    assert "text/html" in tables
    assert squeezed((kernel.folder / "lines.txt").read_text()) == linear_table(2)
    # Of the frames between the cell and its code none is shown.
    assert "_notebook/ipython.py" not in shown.traceback
    assert "----> 6 raise RuntimeError('here')" in shown.traceback
    # Nothing goes on.
    shown = kernel.run("%mlrun -f linear 1")
    assert text(shown) == "No data collected"


def test_an_interrupt_shows_what_ran(kernel):
    shown = kernel.run(
        f"%%mlrun -f linear\nimport os, signal\n{LINEAR}linear()\n"
        "os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass"
    )
    assert shown.error[0] == "KeyboardInterrupt"
    screen, tables = shown.displays
    assert "Verdict: Fits" in screen["text/html"]
    assert "40.00K" in tables["text/plain"]
    assert text(kernel.run("1 + 1")) == "2"


def test_code_with_an_error_of_syntax(kernel):
    shown = kernel.run("%%mlrun\nfoo bar")
    assert shown.error[0] == "SyntaxError" and "foo bar" in shown.traceback


def test_magics_and_commands_within_a_cell(kernel):
    shown = kernel.run(
        f"%%mlrun -f linear\n{LINEAR}!echo from the shell\n%time layer = linear()\n"
        "words = !echo one two"
    )
    assert squeezed(text(shown)) == linear_table(2)
    assert "from the shell" in shown.out and "Wall time" in shown.out
    assert text(kernel.run("words, layer.in_features")) == "(['one two'], 100)"


def test_await_says_what_to_do_instead(kernel):
    ran(kernel.run(f"{LINEAR}async def work(): return linear()\nimport memlab"))
    said = usage_error(kernel.run("%%mlrun -f linear\nlayer = await work()"))
    instead = textwrap.dedent(said.split("do:\n")[1])
    assert instead.startswith("with memlab.LineProfiler(function) as profiler:\n")
    instead = instead.replace("function()", "work()").replace("(function)", "(linear)")
    assert squeezed(text(kernel.run(instead))) == LINEAR_TABLE


def test_in_a_function_its_names_are_known(kernel):
    ran(
        kernel.run(
            f"{LINEAR}def study(inputs):\n"
            "    def wide():\n"
            "        return linear(10 * inputs)\n"
            "    line = '-f wide -f linear -D -c calls layer = wide()'\n"
            "    return get_ipython().run_line_magic('mlrun', line)\n"
        )
    )
    shown = kernel.run("study(20)")
    titles = re.findall("(?m)^## (.+)$", text(shown))
    assert titles == ["study.<locals>.wide", "linear"]


def test_help_shows_the_options(kernel):
    [page] = ran(kernel.run("%mlrun?")).pages
    for option in (
        "-f, --function FUNC",
        "-c, --column COLUMN",
        "-D, --no_default_columns",
        "-g, --gpu GPU_ID",
        "-r, --return-profiler",
        "-q, --quiet",
        "-T, --dump-profile OUTPUT",
    ):
        assert option in page


def test_the_extension_loads_by_both_names_and_again(kernel):
    for line in (
        "%load_ext memlab.compat.pytorch_memlab",
        "%reload_ext memlab",
        "%reload_ext memlab.compat.pytorch_memlab",
    ):
        shown = ran(kernel.run(line))
        assert (shown.out, shown.err) == ("", "")
        ran(kernel.run(LINEAR))
        assert "## linear" in text(kernel.run("%mlrun -f linear linear()"))


def test_the_cells_of_pytorch_memlabs_notebook(kernel):
    """Its tables to the byte, but for three things: memlab leaves the cache alone, so only
    the first table begins with nothing reserved; -q shows nothing; and what stands after
    the options of a cell is run, as %%prun does."""

    def golden(name):
        folder = Path(__file__).parents[1] / "data" / "pytorch_memlab"
        return (folder / name).read_text()

    def reserved(table):
        return table.replace("0.00B          0.00B", "0.00B          2.00M")

    ran(kernel.run("%load_ext memlab.compat.pytorch_memlab"))
    ran(
        kernel.run(
            "import torch\n\n"
            "def x():\n    torch.nn.Linear(100, 100).cuda()\n    \n"
            "def y(gpu=0):\n    torch.nn.Linear(1000, 100).cuda(device=gpu)"
        )
    )
    assert text(kernel.run("%%mlrun -f x -f y\n\nx()\ny()")) == golden("demo_xy.txt")
    z = "def z():\n    torch.nn.Linear(100, 100).cuda()\n%mlrun -f z z()"
    assert text(kernel.run(z)) == reserved(golden("demo_z.txt"))
    shown = kernel.run("%%mlrun -f x -f y -g 0 y\n\nx()\ny(gpu=0)")
    assert text(shown) == reserved(golden("demo_xy.txt"))
    shown = kernel.run("profiler = %mlrun -q -r -f x x()\nprofiler.display()")
    assert text(shown) == reserved(golden("demo_x.txt"))
    shown = ran(kernel.run("%mlrun -q -T profile.log -f x x()"))
    assert (shown.out, shown.result) == ("", None)
    shown = ran(kernel.run("!head profile.log"))
    written = reserved(golden("demo_x.txt"))
    assert shown.out.replace("\r\n", "\n").rstrip("\n") == written


def test_a_recording_shows_its_first_screen(kernel):
    """Two tensors of 32 MiB at once on any GPU of gigabytes: it fits."""
    kept = "kept = [torch.empty(2**23, device='cuda') for _ in range(2)]"
    ran(kernel.run(f"import memlab\nwith memlab.MemorySnapshot() as s:\n    {kept}"))
    result = ran(kernel.run("s")).result
    shown = result["text/html"]
    assert "64.0 MiB allocated, 64.0 MiB reserved of " in shown
    assert "Verdict: Fits" in shown
    assert "<svg" in shown and ">peak 64.0 MiB at " in shown
    assert "cuda:0 peaks at 64.0 MiB allocated, 64.0 MiB reserved" in result["text/plain"]
    assert "text/html" not in ran(kernel.run("memlab.MemorySnapshot()")).result


GROWS = """\
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
for _ in range(8):
    out = net(torch.ones(512, 512, device='cuda'))
    out.sum().backward()
    optimizer.step()
    kept.append(out)
"""


@pytest.mark.parametrize("magic", ["%%memlab run", "%%mlrun"])
def test_what_grows_in_a_cell_is_told_with_its_holder(kernel, magic):
    cell = ran(kernel.run(f"{magic}\n{GROWS}"))
    shown = "".join(each.get("text/html", "") for each in [*cell.displays, cell.result])
    assert "Grows by 1.00 MiB a step since step 0" in shown
    assert re.search(r"held by (local|global) `kept\[\.\.\.\]`", shown), shown


def test_in_a_terminal(phantom_run):
    """Without a kernel IPython shows the text."""
    done = phantom_run(
        """\
import os
os.environ["IPYTHONDIR"] = os.getcwd()
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="NoColor")
for cell in (
    "import torch\\n%load_ext memlab",
    "%%mlrun -f f\\ndef f():\\n    return torch.empty(1000, device='cuda')\\nf()",
    "%%mlrun -f f -D -c calls\\nf()\\nraise KeyError('here')",
):
    shell.run_cell(cell)
"""
    )
    screen, first, second = done.stdout.split("## f\n")
    assert "Peak on cuda:0: 4.00 KiB allocated" in screen and "Verdict: Fits" in screen
    assert squeezed(first).startswith(
        "\nactive_bytes reserved_bytes line code\nall all\npeak peak\n"
        "0.00B 0.00B 2 def f():\n"
        "4.00K 2.00M 3 return torch.empty(1000, device='cuda')"
    )
    assert squeezed(second).startswith(
        "\ncalls line code\n\n\n1 2 def f():\n1 3 return"
    )
    assert "KeyError: 'here'" in done.stdout
