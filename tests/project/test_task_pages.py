"""The pages of docs/start and docs/tasks do what they say when a reader goes through one from
top to bottom in an empty folder: files are written, commands run, and what they print is what
the page shows.

    ```python title="train.py"    writes the file
    ```sh                         runs; a line may say `# ends with status 3`
    ```text                       what the commands before it printed: lines in a row, of which
                                  those before and behind may be cut; `...` is anything
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_here import why_not_shown

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/tasks/*.md"), *ROOT.glob("docs/start/*.md")])
MOST_LINES = 50
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.S | re.M)

TASKS = (
    "ci commits compile fit fragmentation gpus leak notebook oom peak production script world"
).split()

# With how many commands each of five tasks is done.  More are a step back.
FEW = {"oom": 2, "leak": 3, "fit": 1, "ci": 4, "notebook": 1}

# Whose memlab the pages use; tools/wheels/try.sh gives that of an installed wheel.
PYTHON = os.environ.get("MEMLAB_PAGES_PYTHON", sys.executable)

# What a reader has on the path, by the words of Python that are it.
COMMANDS = {
    "python": "",
    "memlab": "-m memlab",
    "pytest": "-m pytest -p pytest_memlab -p no:cacheprovider",
    "ipython": "-m IPython",
    "torchrun": "-m torch.distributed.run",
}


def actions(page):
    """The steps of a page: ("write", file, text), ("run", commands), ("shows", text)."""
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            yield "write", title, text
        elif language == "sh":
            yield "run", text
        elif language == "text":
            yield "shows", text


class Places:
    """Folders in which the first steps of a page have been taken, which pages share."""

    def __init__(self, folder):
        self.folder, self.known = folder, {(): (None, "")}
        commands = folder / "bin"
        commands.mkdir()
        for name, words in COMMANDS.items():
            (commands / name).write_text(f'#!/bin/sh\nexec {PYTHON} {words} "$@"\n')
            (commands / name).chmod(0o755)
        (folder / "home").mkdir()

    def after(self, steps, environment):
        """(folder, what the last commands printed) after STEPS, which are not empty."""
        if steps in self.known:
            return self.known[steps]
        before, printed = self.after(steps[:-1], environment)
        place = self.folder / f"place{len(self.known)}" / "here"
        place.parent.mkdir()
        if before:
            shutil.copytree(before, place, symlinks=True)
        else:
            place.mkdir()
        kind, *words = steps[-1]
        if kind == "write":
            (place / words[0]).write_text(words[1])
        else:
            printed = self.run(words[0], place, environment)
        self.known[steps] = place, printed
        return place, printed

    def run(self, text, place, environment):
        """What the commands of TEXT print, those of a line that goes on with it."""
        environment = {
            **environment,
            "PATH": f"{self.folder / 'bin'}:{environment['PATH']}",
            "IPYTHONDIR": str(self.folder / "home"),
            "COLUMNS": "80",
        }
        printed = []
        for line in text.replace("\\\n", " ").splitlines():
            expected = re.search(r"# ends with status (\d+)$", line)
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=600,
            )
            printed.append(done.stdout)
            assert done.returncode == int(expected[1] if expected else 0), (
                f"{line}\n{done.stdout}"
            )
        return "".join(printed)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return Places(tmp_path_factory.mktemp("pages"))


def is_shown_by(text, printed):
    """Whether PRINTED has the lines of TEXT, of which `...` is anything."""
    pattern = r"\.\.\.".join(
        re.escape(part) for part in re.sub(r" +$", "", text.strip("\n"), flags=re.M).split("...")
    )
    pattern = pattern.replace(r"\.\.\.", ".*?")
    printed = re.sub(r" +$", "", printed, flags=re.M)
    return re.search(rf"^{pattern}$", printed, re.S | re.M) is not None


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
@pytest.mark.skipif(bool(why_not_shown()), reason=str(why_not_shown()))
def test_a_page_does_what_it_says(page, places, device_environment):
    environment = {
        name: value
        for name, value in device_environment.items()
        if not name.startswith("MEMLAB_PHANTOM") and name != "LD_PRELOAD"
    }
    steps = ()
    for action in actions(page):
        if action[0] == "shows":
            _, printed = places.after(steps, environment)
            assert is_shown_by(action[1], printed), f"{action[1]}\nis not in\n{printed}"
        else:
            steps += (action,)
    if steps:
        places.after(steps, environment)


def test_every_task_has_a_page_that_shows_what_one_sees():
    assert sorted(p.stem for p in PAGES if p.parent.name == "tasks") == TASKS
    for page in PAGES:
        kinds = [kind for kind, *_ in actions(page)]
        assert "run" in kinds and "shows" in kinds, page


@pytest.mark.parametrize("task", FEW)
def test_a_task_takes_few_commands_and_all_of_them_are_memlabs(task):
    page = ROOT / "docs" / "tasks" / f"{task}.md"
    lines = [
        line
        for kind, *words in actions(page)
        if kind == "run"
        for line in words[0].replace("\\\n", " ").splitlines()
        # The reader's own edit.
        if not line.startswith("sed ")
    ]
    assert all(line.startswith("memlab ") for line in lines)
    assert len(lines) <= FEW[task], lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_a_page_is_one_screen(page):
    assert len(page.read_text().splitlines()) <= MOST_LINES


def test_what_is_shown_is_compared():
    printed = "first\nPeak: 3 GiB  \nthen\nlast\n"
    assert is_shown_by("Peak: 3 GiB\nthen\n", printed)
    assert is_shown_by("Peak: ... GiB\n...\nlast\n", printed)
    assert not is_shown_by("Peak: 3 GiB\nlast\n", printed)
    assert not is_shown_by("Peak: 3\n", printed)
