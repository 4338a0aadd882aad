"""A command that is at work for long says so on a terminal, and takes the line away."""

import io
import re
import threading

import pytest

from memlab._cli import speeds
from memlab._cli.progress import Progress


class Terminal(io.StringIO):
    def __init__(self):
        super().__init__()
        self.written = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        super().write(text)
        self.written.set()


def test_long_work_is_told_and_the_line_goes_before_the_answer():
    terminal = Terminal()
    progress = Progress("explain", terminal, delay=0, every=3600)
    assert terminal.written.wait(60)
    progress.end()
    progress.end()
    assert terminal.getvalue() == "\r\033[Kmemlab: explain ... 0 s\r\033[K"


def test_what_is_left_is_told_where_it_is_known():
    terminal = Terminal()
    progress = Progress("explain", terminal, delay=0, every=3600, expected=100)
    assert terminal.written.wait(60)
    progress.end()
    said = re.search(r"explain \.\.\. (\d+) s, about (\d+) s left", terminal.getvalue())
    assert 99 <= int(said[1]) + int(said[2]) <= 101


def test_an_estimate_that_was_too_short_is_no_longer_told():
    terminal = Terminal()
    progress = Progress("explain", terminal, delay=0, every=3600, expected=1e-9)
    assert terminal.written.wait(60)
    progress.end()
    assert "left" not in terminal.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("MEMLAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "memlab" / "speeds.json"


def test_a_command_takes_as_long_for_a_byte_as_the_last_time(cache):
    assert speeds.seconds("view", 1000) is None
    speeds.keep("view", 1000, 5)
    speeds.keep("report", 1000, 2)
    assert speeds.seconds("view", 3000) == pytest.approx(15)
    assert speeds.seconds("report", 500) == pytest.approx(1)
    assert speeds.seconds("diff", 500) is None
    speeds.keep("view", 1000, 7)
    assert speeds.seconds("view", 1000) == pytest.approx(7)
    speeds.keep("view", 0, 7)
    assert speeds.seconds("view", 0) is None


@pytest.mark.parametrize("text", ["", "[1]", '{"view": "x"}', '{"view": -1}', "\0"])
def test_a_file_of_speeds_that_says_nothing_is_no_error(cache, text):
    cache.parent.mkdir()
    cache.write_text(text)
    assert speeds.seconds("view", 1000) is None
    speeds.keep("view", 1000, 5)
    assert speeds.seconds("view", 1000) == pytest.approx(5)


def test_a_cache_that_cannot_be_written_is_no_error(cache):
    cache.parent.write_text("a file")
    speeds.keep("view", 1000, 5)
    assert speeds.seconds("view", 1000) is None


def test_what_a_command_reads_is_its_files_and_the_recordings_of_its_folders(tmp_path):
    (tmp_path / "rank0.mlab").write_bytes(bytes(300))
    (tmp_path / "rank1.pickle").write_bytes(bytes(20))
    (tmp_path / "report.txt").write_bytes(bytes(7))
    one = str(tmp_path / "report.txt")
    assert speeds.size_of([str(tmp_path), one, "not there", "s3://x/y", None, "\0"]) == 327


def test_short_work_says_nothing():
    terminal = Terminal()
    Progress("explain", terminal, delay=3600).end()
    assert terminal.getvalue() == ""


def test_nothing_is_told_where_nobody_looks():
    stream = io.StringIO()
    progress = Progress("explain", stream, delay=0)
    progress.end()
    Progress("explain", None, delay=0).end()
    assert stream.getvalue() == ""


def test_a_terminal_that_went_away_ends_it():
    class Gone(Terminal):
        def write(self, text):
            self.written.set()
            raise OSError("gone")

    terminal = Gone()
    progress = Progress("explain", terminal, delay=0, every=0)
    assert terminal.written.wait(60)
    progress.end()
