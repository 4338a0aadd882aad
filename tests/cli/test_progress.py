"""A command that is at work for long says so on a terminal, and takes the line away."""

import io
import threading

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
    assert terminal.getvalue() == "\rmemlab: explain ... 0 s\r\033[K"


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
