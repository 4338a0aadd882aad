"""%memlab run and %%memlab run in a real Jupyter kernel and in IPython without one, and the
chart under the cell.
"""

import re
import threading

import pytest

pytest.importorskip("IPython", reason="IPython is not installed")

from jupyter_kernel import ran, usage_error

from memlab._notebook import chart as _chart
from memlab._notebook.chart import Chart

MIB = 1 << 20


@pytest.mark.cuda
def test_a_cell_gives_its_recording_and_keeps_its_names(kernel):
    shown = ran(kernel.run("""%%memlab run

held = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
held.numel()
"""))
    assert [each["text/plain"] for each in shown.displays] == [str(8 * MIB)]
    page = shown.result["text/html"]
    assert "Peak on cuda:0" in page and "8.00 MiB" in page and "<svg" in page
    # Lines are numbered as the cell shows them, that of the magic first.
    assert not ran(kernel.run("%%memlab run\n1 + 1;")).displays
    place = ran(kernel.run("__.peak()['by_line'][0]['line'], held.numel()"))
    assert place.result["text/plain"] == f"(3, {8 * MIB})"


@pytest.mark.cuda
def test_a_statement_gives_what_can_be_asked_further(kernel):
    ran(kernel.run("def use(mib):\n    return torch.zeros(mib << 20, device='cuda')[:0]"))
    ran(kernel.run("recording = %memlab run use(mib=1)"))
    peak = ran(kernel.run("recording.peak()['peak']['allocated_bytes'] >> 20"))
    assert peak.result["text/plain"] == "4"


@pytest.mark.cuda
def test_while_it_runs_a_chart_is_shown_and_taken_away(kernel):
    ran(kernel.run("""
from memlab._notebook import chart, ipython
drawn = __import__("threading").Event()
class Quick(chart.Chart):
    def __init__(self, read):
        super().__init__(read, first=0, every=0)
    def _show(self, shown):
        super()._show(shown)
        if "cuda:0" in shown.data:
            drawn.set()
ipython.Chart = Quick
"""))
    shown = ran(kernel.run("""%%memlab run
held = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
assert drawn.wait(120)
"""))
    [first] = shown.displays
    assert first["text/html"].startswith("<div")
    assert shown.result is not None


@pytest.mark.cuda
def test_a_cell_that_fails_shows_its_recording_too(kernel):
    shown = kernel.run("""%%memlab run
held = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
1 / 0
""")
    assert shown.error[0] == "ZeroDivisionError"
    assert any("8.00 MiB" in d.get("text/html", "") for d in shown.displays)


def test_in_a_terminal_a_statement_that_fails_shows_the_first_screen_too(phantom_run):
    done = phantom_run(
        """\
import os
os.environ["IPYTHONDIR"] = os.getcwd()
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell("import torch\\n%load_ext memlab")
shell.run_cell("%memlab run torch.empty(1 << 42, dtype=torch.int8, device='cuda')")
"""
    )
    screen, _, error = done.stdout.partition("OutOfMemoryError")
    assert "Verdict: Out of memory" in screen and "4.00 TiB" in screen
    assert "Tried to allocate 4096.00 GiB" in error


@pytest.mark.cuda
def test_what_is_no_use_of_it_says_which_there_are(kernel):
    for cell in ("%memlab run", "%memlab", "%memlab report x", "%%memlab free\n1"):
        assert "%memlab run statement" in usage_error(kernel.run(cell))
    said = usage_error(kernel.run("%memlab run await f()"))
    assert said.startswith("%memlab run cannot await") and "memlab.MemorySnapshot()" in said


# --- The chart ------------------------------------------------------------------------


def drawn(monkeypatch, samples):
    """The chart after each of SAMPLES, lists of what was read, and what took it away."""
    shown, left, done = [], list(samples), threading.Event()

    def read():
        if len(left) == 1:
            done.set()
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(_chart, "display", lambda html, display_id: shown.append(html.data))
    monkeypatch.setattr(
        _chart, "update_display", lambda html, display_id: shown.append(html.data)
    )
    chart = Chart(read, first=0, every=0)
    assert done.wait(60)
    chart.end()
    return shown


def test_a_line_goes_from_the_bottom_to_its_highest_point(monkeypatch):
    *shown, last = drawn(monkeypatch, [{"cuda:0": n * MIB} for n in (0, 4, 8, 6)])
    heights = [float(y) for y in re.findall(r",([\d.]+)", re.search('points="(.*?)"', shown[3])[1])]
    assert heights == [60.0, 31.0, 2.0, 16.5]
    assert "cuda:0: 6.00 MiB allocated,<br>at most 8.00 MiB" in shown[3]
    assert last == ""


def test_a_chart_of_a_long_cell_has_few_points(monkeypatch):
    shown = drawn(monkeypatch, [{"cuda:0": MIB}] * 2000)
    assert max(page.count(",") for page in shown) < 2 * _chart._POINTS


def test_what_cannot_be_read_ends_the_chart_alone(monkeypatch):
    failed = threading.Event()

    def read():
        failed.set()
        raise ValueError("gone")

    chart = Chart(read, first=0, every=0)
    assert failed.wait(60)
    chart.end()
