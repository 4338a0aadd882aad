"""%%memlab run, %memlab run and %%mlrun in a browser: frontends.py FRONTEND FOLDER

FRONTEND is lab, notebook or nbclassic, of the Jupyter whose `jupyter` is first on the PATH;
the kernel is this Python's, on the phantom device.  Runs a notebook cell by cell in headless
Chromium, as a user does with Shift Enter, and writes to FOLDER a picture while the cell runs
and one at the end.  Fails where a chart, a recording or a table is not seen.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

PATIENCE_MS = 180_000
# What is opened in each, and where its cells and their outputs are.
FRONTENDS = {
    "lab": ("lab", "lab/tree/run.ipynb", ".jp-Notebook-cell", ".jp-Cell-outputArea"),
    "notebook": (
        "notebook",
        "notebooks/run.ipynb",
        ".jp-Notebook-cell",
        ".jp-Cell-outputArea",
    ),
    "nbclassic": (
        "nbclassic",
        "nbclassic/notebooks/run.ipynb",
        ".code_cell",
        ".output_wrapper",
    ),
}
CELLS = [
    "%load_ext memlab\n"
    "import time, torch\n"
    "model = torch.nn.Linear(1024, 4096).cuda()\n\n"
    "def train(steps):\n"
    "    kept = []\n"
    "    for step in range(steps):\n"
    "        kept = kept[-20:] + [torch.zeros(1 << 20, device='cuda')]\n"
    "        loss = model(torch.randn(4096, 1024, device='cuda')).square().mean()\n"
    "        loss.backward()\n"
    "        time.sleep(0.1)",
    "%%memlab run\ntrain(60)",
    "recording = %memlab run train(2)\nrecording.peak()['peak']['allocated_bytes'] > 0",
    "%%mlrun -f train\ntrain(2)",
]


CHART = """(output) => {
  const picture = output.querySelector("svg[role=img]");
  const { width, height } = picture.getBoundingClientRect();
  return { width, height, text: output.innerText,
           color: getComputedStyle(picture.querySelector("polyline")).stroke };
}"""


def notebook():
    kernel = {"name": "memlab-phantom", "display_name": "memlab", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell{i}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for i, source in enumerate(CELLS)
        ],
    }


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def write_kernel(data):
    """The kernel, as Jupyter finds it below DATA."""
    place = data / "kernels" / "memlab-phantom"
    place.mkdir(parents=True)
    argv = [sys.executable, "-m", "memlab", "phantom", "--gpu", "rtx4090"]
    argv += [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "memlab", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec))


def serve(program, room):
    """The server, started, and its address."""
    (room / "run.ipynb").write_text(json.dumps(notebook()))
    write_kernel(room / "data")
    port = free_port()
    environment = {
        **os.environ,
        "JUPYTER_DATA_DIR": str(room / "data"),
        "JUPYTER_CONFIG_DIR": str(room / "config"),
        "JUPYTER_RUNTIME_DIR": str(room / "runtime"),
        "IPYTHONDIR": str(room / "ipython"),
        "MEMLAB_PHANTOM_QUIET": "1",
    }
    command = ["jupyter", program, "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--ServerApp.token=", "--ServerApp.password=", f"--notebook-dir={room}"]
    with open(room / "server.log", "wb") as log:
        server = subprocess.Popen(
            command, cwd=room, env=environment, stdout=log, stderr=log
        )
    return server, f"http://127.0.0.1:{port}/"


def opened(page, address):
    """The notebook's page, once the server answers."""
    last = time.monotonic() + PATIENCE_MS / 1000
    while True:
        try:
            page.goto(address)
            return
        except Exception:
            if time.monotonic() > last:
                raise
            page.wait_for_timeout(500)


def drive(page, cell, output, folder, name):
    """Runs the cells; returns what is seen of each, by its name."""
    cells = page.locator(cell)
    cells.nth(len(CELLS) - 1).wait_for()
    page.wait_for_timeout(3000)  # until the kernel is there, keys are not followed

    def run(i):
        cells.nth(i).click()
        page.keyboard.press("Shift+Enter")
        return cells.nth(i).locator(output)

    run(0)
    outputs = run(1)
    line = outputs.locator("svg polyline")
    # Of several points, of different heights: one that can be seen.
    line.wait_for()
    # At once: the chart is drawn anew a few times a second.
    chart = outputs.evaluate(CHART)
    page.screenshot(path=folder / f"{name}-running.png")
    first = outputs.locator("text=/Peak on cuda:0/").first
    first.wait_for()
    recording = outputs.inner_text()
    left = outputs.locator("svg polyline").count()
    run(2).locator("text=True").wait_for()
    lines = run(3)
    table = lines.locator("table", has_text="active_bytes")
    table.wait_for()
    # Recordings are longer than a window.
    page.set_viewport_size({"width": 1280, "height": 2600})
    page.wait_for_timeout(1000)
    page.screenshot(path=folder / f"{name}-end.png")
    return {
        "chart": chart,
        "recording": recording,
        "lines_after": left,
        "lines": lines.inner_text(),
    }


def see(name, folder):
    """Runs the notebook in the frontend NAME; returns what was seen."""
    program, path, cell, output = FRONTENDS[name]
    folder = Path(folder).resolve()
    room = folder / f"{name}-room"
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(parents=True)
    server, address = serve(program, room)
    browser_path = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=browser_path, args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            opened(page, address + path)
            try:
                seen = drive(page, cell, output, folder, name)
            except Exception:
                page.screenshot(path=folder / f"{name}-failed.png")
                raise
            browser.close()
    finally:
        server.terminate()
        server.wait()
    return seen


def check(seen):
    chart = seen["chart"]
    assert re.search(r"cuda:0: .* allocated,\s+at most ", chart["text"]), chart
    assert chart["width"] >= 200 and chart["height"] >= 40, chart
    assert "Peak on cuda:0" in seen["recording"], seen["recording"]
    # The chart goes; the recording's own picture is no line.
    assert "at most" not in seen["recording"], seen["recording"]
    assert "Verdict: Fits" in seen["recording"], seen["recording"]
    # Above the table of %%mlrun there is its first screen.
    screen, _, table = seen["lines"].partition("active_bytes")
    assert "Peak on cuda:0" in screen and "Verdict: Fits" in screen, seen["lines"]
    assert "train(steps)" in table, seen["lines"]


if __name__ == "__main__":
    found = see(*sys.argv[1:])
    check(found)
    print(json.dumps(found, indent=1))
