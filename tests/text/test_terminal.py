"""Reports in terminals of any width: nothing wider than it, nothing left out."""

import io
import pickle
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pseudo_terminal import in_a_terminal

from memlab import _core
from memlab._report import report as _report
from memlab._text import terminal as _terminal

REPORT = """\
Peak on cuda:0: 4.50 GiB allocated (4831838208 bytes)

By line
    4.00 GiB   88.9 %  12 blocks  activation +1  train.py:7 forward
  512.00 MiB   11.1 %    1 block  gradient       /home/someone/project/models/gpt.py:1234 \
forward [transformer.h.3.attn.c_attn] (backward)    x = self.c_attn(x)
"""


def columns(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def test_a_report_at_60_columns():
    """Tables break before their last column, what is too long for a line after a word."""
    assert _terminal.fit(REPORT, 60) == """\
Peak on cuda:0: 4.50 GiB allocated (4831838208 bytes)

By line
    4.00 GiB   88.9 %  12 blocks  activation +1
      train.py:7 forward
  512.00 MiB   11.1 %    1 block  gradient
      /home/someone/project/models/gpt.py:1234 forward
      [transformer.h.3.attn.c_attn] (backward)
      x = self.c_attn(x)
"""


def test_a_word_without_room_breaks_where_it_has_parts():
    line = "  4 B  " + "/".join(["folder"] * 10) + ":12"
    assert _terminal.fit(line, 30).split("\n") == [
        "  4 B",
        "      folder/folder/folder/",
        "      folder/folder/folder/",
        "      folder/folder/folder/",
        "      folder:12",
    ]


def test_what_is_to_be_pasted_can_stay_whole():
    setting = "PYTORCH_CUDA_ALLOC_CONF=" + ",".join(["expandable_segments:True"] * 3)
    assert _terminal.fit(setting, 40, whole=True) == setting
    said = _terminal.fit(f"  Write: {setting} before the run, and then run it again", 40, whole=True)
    assert said.split("\n") == [
        "  Write:",
        f"      {setting}",
        "      before the run, and then run it",
        "      again",
    ]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1)
LINES = st.builds(
    lambda indent, words: " " * indent + "".join(words),
    st.integers(0, 8),
    st.lists(WORDS | st.sampled_from([" ", "  ", "    "])),
)


@given(st.lists(LINES).map("\n".join), st.integers(20, 100))
def test_every_line_fits_and_nothing_is_lost(text, width):
    fitted = _terminal.fit(text, width)
    assert "".join(fitted.split()) == "".join(text.split())
    assert all(columns(line) <= width for line in fitted.split("\n"))
    for line in text.split("\n"):
        if columns(line) <= width:
            assert line in fitted.split("\n")


@pytest.mark.parametrize("width", [0, 1, 19])
def test_without_a_width_or_with_hardly_any_nothing_is_broken(width):
    assert _terminal.fit(REPORT, width) == REPORT


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of the scripted source with a long place."""
    from memlab import MemorySnapshot

    source = _core.Script()
    snapshot = MemorySnapshot(source="script")
    snapshot.start()

    def a_function_whose_name_says_all_that_there_is_to_say_about_what_it_does():
        source.emit("segment_alloc", 1 << 30, 2 << 20)
        source.emit("alloc", 1 << 30, 1 << 20)

    a_function_whose_name_says_all_that_there_is_to_say_about_what_it_does()
    snapshot.stop()
    path = tmp_path_factory.mktemp("recorded") / "run.pickle"
    snapshot.save(path)
    source.reset()
    return path


@pytest.mark.parametrize("width", [40, 60, 79])
def test_the_report_fits_the_terminal(recorded, width):
    piped = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "--full", str(recorded)],
        check=True, capture_output=True, text=True,
    ).stdout
    assert any(len(line) > 79 for line in piped.splitlines())
    shown = in_a_terminal(width, "report", "--full", recorded, env={"NO_COLOR": "1"})
    assert all(len(line) <= width for line in shown.splitlines())
    assert "".join(shown.split()) == "".join(piped.split())
    # COLUMNS is the user's own word about the width.
    environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
    assert in_a_terminal(200, "report", "--full", recorded, env=environment) == shown


@pytest.mark.parametrize("command", ["explain", "tune"])
def test_a_wide_terminal_is_used(recorded, command):
    """Without colour as with it; elsewhere such answers keep to 80 columns."""
    plain = in_a_terminal(140, command, recorded, env={"NO_COLOR": "1"})
    narrow = in_a_terminal(80, command, recorded, env={"NO_COLOR": "1"})
    assert 80 < max(map(len, plain.splitlines())) <= 140
    assert len(narrow.splitlines()) > len(plain.splitlines())


@pytest.mark.parametrize("length", [60, 61])
def test_a_long_line_of_the_program_is_cut_and_says_so(recorded, length):
    snapshot = pickle.loads(recorded.read_bytes())
    code = snapshot["memlab"]["code"]
    code["text"] = ["  " + "x" * length] * len(code["text"])
    data = pickle.dumps(snapshot, protocol=4)
    shown = _report.text(_core.Recording.from_bytes(data), functions=None)
    (line,) = [line for line in shown.splitlines() if "xx" in line]
    assert line.endswith("    " + "x" * 60 + (" ..." if length > 60 else ""))


def test_json_is_as_it_is_in_any_terminal(recorded):
    piped = subprocess.run(
        [sys.executable, "-m", "memlab", "report", "--json", str(recorded)],
        check=True, capture_output=True, text=True,
    ).stdout
    assert in_a_terminal(40, "report", "--json", recorded) == piped


def test_run_shows_its_first_screen_as_wide_as_the_terminal(tmp_path, torch):
    script = tmp_path / "train.py"
    script.write_text("import torch\nkept = torch.zeros(1 << 20)\n")
    shown = in_a_terminal(
        50, "run", "--device", "cpu", "--out", tmp_path / "out", script, stream="stderr"
    )
    assert "Peak on cpu:0" in shown
    assert all(len(line) <= 50 for line in shown.splitlines())
    # The file is for editors and searches.
    report = (tmp_path / "out" / "report.txt").read_text()
    first = report[: report.index("\n\n")]
    assert "".join(first.split()) in "".join(shown.split())


def test_a_line_and_its_end_are_one_write():
    """Or, unbuffered, the lines of two processes on one terminal run into each other."""
    written = []

    class Stream(io.StringIO):
        def write(self, text):
            if text:
                written.append(text)
            return len(text)

    _terminal.say("files in memlab_out", Stream())
    assert written == ["files in memlab_out\n"]
