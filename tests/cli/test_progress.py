"""A command that is at work for long says so on a terminal, and takes the line away."""

import io
import math
import re
import threading

import pytest

from memlab._cli import speeds
from memlab._text.progress import Progress


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


def reading(command, size, *looks):
    """A Reading of SIZE MiB that has looked; LOOKS are (second, MiB that the process has
    read)."""
    times, counts = zip((0, 50), *looks)
    counts = iter([count if count is None else count << 20 for count in counts])
    times = iter(times)
    made = speeds.Reading(command, size << 20, lambda: next(counts), lambda: next(times))
    return made, [made.wait() for _ in looks]


def test_at_a_first_use_the_reading_tells_how_long_it_takes():
    # 400 of 1000 MiB in two seconds: five to read all, of which report takes three times.
    made, waits = reading("report", 1000, (1, 250), (2, 450))
    assert made.expected() == pytest.approx(15)
    assert waits == [0.1, 0.1]
    # All of them; what is read later is no matter.
    made, waits = reading("report", 1000, (2, 450), (4, 5000))
    assert made.expected() == pytest.approx(12)
    assert waits[-1] == math.inf


def test_a_reading_that_has_ended_before_all_bytes_is_what_there_was_to_read():
    made, waits = reading("report", 1000, (2, 450), (4, 450))
    assert made.expected() == pytest.approx(6)
    assert waits[-1] == math.inf


@pytest.mark.parametrize(
    ("command", "size", "count"),
    [("report", 1000, 52), ("fit", 1000, 500), ("report", 15, 500), ("report", 1000, None)],
)
def test_a_reading_that_says_nothing_gives_no_estimate(command, size, count):
    assert reading(command, size, (1, count))[0].expected() is None


def test_a_reading_is_told_until_the_end():
    terminal = Terminal()
    made, _ = reading("explain", 1000, (2, 1050))
    progress = Progress("explain", terminal, delay=0, every=3600, reading=made)
    assert terminal.written.wait(60)
    progress.end()
    assert re.search(r"explain \.\.\. 0 s, about (19|20) s left", terminal.getvalue())


def test_the_bytes_that_this_process_has_read_are_the_kernels(tmp_path):
    (tmp_path / "file").write_bytes(bytes(100_000))
    before = speeds.bytes_read()
    (tmp_path / "file").read_bytes()
    assert 100_000 <= speeds.bytes_read() - before < 150_000


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
