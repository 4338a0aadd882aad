"""The example notebook: what it keeps is what a Jupyter kernel makes of it.

MEMLAB_OUTPUTS=1 keeps what the kernel made, MEMLAB_IMAGES=docs/images the pictures.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "line_profiler.ipynb"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def kept():
    return nbformat.read(NOTEBOOK, as_version=4)


def same(key, value):
    """VALUE of an output without times, which a picture of a recording has."""
    if key != "data" or "text/html" not in value:
        return value
    return {**value, "text/html": re.sub("(?s)<svg.*</svg>", "", value["text/html"])}


def outputs(notebook):
    """What the cells of code show, without what differs from run to run."""
    return [
        [
            {key: same(key, value) for key, value in output.items() if key != "metadata"}
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def texts(notebook):
    """What each cell shows as text, below its first screen."""
    return [
        "".join(
            o.get("text") or o["data"]["text/plain"] + "\n"
            for o in shown
            if o["output_type"] != "display_data"
        )
        for shown in outputs(notebook)
    ]


@pytest.mark.cuda
def test_the_kept_outputs_are_what_a_kernel_makes(
    device_environment, tmp_path, monkeypatch
):
    # Not the user's own settings of IPython and Jupyter.
    environment = {**device_environment, "MEMLAB_PHANTOM_QUIET": "1"}
    environment["IPYTHONDIR"] = str(tmp_path)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    notebook = kept()
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(env=environment, cwd=str(tmp_path))
    if os.environ.get("MEMLAB_OUTPUTS"):
        for cell in notebook.cells:
            cell.metadata.clear()
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, NOTEBOOK)
    assert outputs(notebook) == outputs(kept())


def test_the_kept_figures_are_those_worked_out_by_hand():
    """The notebook says how: a layer is 40 KiB, 1 << 20 numbers are 4 MiB."""
    nothing, linear, scale, shape, profiler = texts(kept())
    assert nothing == ""
    assert linear == (
        "## outer\n\n"
        "active_bytes reserved_bytes line  code                                           \n"
        "         all            all                                                      \n"
        "        peak           peak                                                      \n"
        "       0.00B          0.00B    6  def outer():                                   \n"
        "      40.00K          2.00M    7      linear = torch.nn.Linear(100, 100).cuda()  \n"
        "      80.00K          2.00M    8      linear2 = torch.nn.Linear(100, 100).cuda() \n"
        "     120.00K          2.00M    9      inner()                                    \n"
        "\n\n"
        "## inner\n\n"
        "active_bytes reserved_bytes line  code                                 \n"
        "         all            all                                            \n"
        "        peak           peak                                            \n"
        "      80.00K          2.00M    3  def inner():                         \n"
        "     120.00K          2.00M    4      torch.nn.Linear(100, 100).cuda() \n"
    )  # fmt: skip
    # The most active, what is left, calls.  x; with 2 * x and the sum three at once, of
    # which 2 * x goes; x and y stay for each round, whose result takes y's place.
    assert scale == (
        "## scale\n\n"
        "active_bytes delta calls line  code                                 \n"
        "         all                                                        \n"
        "        peak                                                        \n"
        "       0.00B 0.00B     1    1  def scale(n):                        \n"
        '       4.00M 4.00M     1    2      x = torch.ones(n, device="cuda") \n'
        "      12.00M 4.00M     1    3      y = 2 * x + x                    \n"
        "       8.00M 0.00B     4    4      for _ in range(3):               \n"
        "      12.00M 0.00B     3    5          y = y.sqrt()                 \n"
        "       8.00M 0.00B     1    6      return y                         \n"
    )
    assert shape == "torch.Size([1048576])\n"
    # Allocated and freed by one run of the line.
    assert profiler == (
        "## scale\n\n"
        "allocated_bytes allocated_bytes line  code                                 \n"
        "            all             all                                            \n"
        "      allocated           freed                                            \n"
        "          0.00B           0.00B    1  def scale(n):                        \n"
        '          4.00M           0.00B    2      x = torch.ones(n, device="cuda") \n'
        "          8.00M           4.00M    3      y = 2 * x + x                    \n"
        "          0.00B           0.00B    4      for _ in range(3):               \n"
        "          4.00M           4.00M    5          y = y.sqrt()                 \n"
        "          0.00B           0.00B    6      return y                         \n"
    )


THEMES = {
    "light": ("#fff", "rgba(0, 0, 0, 0.87)", "#bdbdbd", "#f5f5f5"),
    "dark": ("#111", "rgba(255, 255, 255, 0.87)", "#616161", "#212121"),
}
# What JupyterLab does with a table that a cell shows.
STYLE = """
body {{ margin: 0; padding: 8px 12px; background: {}; color: {}; font: 14px sans-serif }}
table {{ border-collapse: collapse; font-size: 12px }}
thead {{ border-bottom: 1px solid {} }}
td, th {{ padding: .5em; text-align: right; line-height: normal }}
tbody tr:nth-child(odd) {{ background: {} }}
"""


@pytest.mark.parametrize("theme", THEMES)
def test_the_tables_as_a_picture(theme, tmp_path):
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    folder = Path(os.environ.get("MEMLAB_IMAGES") or tmp_path)
    shown = outputs(kept())[1][-1]["data"]["text/html"]
    style = STYLE.format(*THEMES[theme])
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 720, "height": 100})
        page.set_content(f"<style>{style}</style>{shown}")
        page.screenshot(path=folder / f"notebook-{theme}.png", full_page=True)
        titles = page.locator("h3").all_inner_texts()
        rows = page.locator("tbody tr").all_inner_texts()
        browser.close()
    assert titles == ["outer", "inner"]
    assert [row.split("\t")[:3] for row in rows] == [
        ["0.00B", "0.00B", "6"],
        ["40.00K", "2.00M", "7"],
        ["80.00K", "2.00M", "8"],
        ["120.00K", "2.00M", "9"],
        ["80.00K", "2.00M", "3"],
        ["120.00K", "2.00M", "4"],
    ]
