"""memlab view --serve of many ranks: the summary, and pages of ranks made when they are asked
for.
"""

import contextlib
import threading
from urllib.parse import urlsplit

import pytest
from test_serve import ask

from memlab._errors import Error
from memlab._serve import ranks


class Made:
    """Makes pages; asked: of which ranks it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, rank):
        self.asked.append(rank)
        if rank > 99:
            raise Error(f"rank {rank} is not in out")
        yield f"<p>rank {rank}".encode()


@pytest.fixture
def served():
    made = Made()
    server = ranks.Server(b"<p>summary", made)
    thread = threading.Thread(target=server.run)
    thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(server.close)
        yield urlsplit(server.url), made.asked


def test_a_rank_s_page_is_made_when_it_is_asked_for_and_once(served):
    url, asked = served
    status, headers, body = ask(url)
    assert (status, body, asked) == (200, b"<p>summary", [])
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    for _ in range(2):
        assert ask(url, "rank7.html")[::2] == (200, b"<p>rank 7")
    assert asked == [7]
    assert ask(url, "rank7.html", "HEAD")[2] == b""


def test_a_rank_that_is_not_there_is_said(served):
    url, _ = served
    assert ask(url, "rank100.html")[::2] == (404, b"rank 100 is not in out\n")
    # The server goes on.
    assert ask(url, "rank1.html")[0] == 200


def test_of_many_pages_the_newest_are_kept(served, monkeypatch):
    monkeypatch.setattr(ranks, "_KEPT", 2)
    url, asked = served
    for rank in (1, 2, 3, 3, 1):
        assert ask(url, f"rank{rank}.html")[0] == 200
    assert asked == [1, 2, 3, 1]


@pytest.mark.parametrize("path", ["other.html", "../rank1.html", "rank1.html/", "blobs"])
def test_nothing_else_is_there(served, path):
    url, asked = served
    assert ask(url, path)[0] == 404
    assert asked == []


def test_without_the_secret_nothing_is_answered(served):
    url, asked = served
    assert ask(url, "/rank1.html")[0] == 403
    assert ask(url, "/" + "x" * 32 + "/rank1.html")[0] == 403
    assert ask(url, "rank1.html", host="example.com")[0] == 403
    assert asked == []
