"""memlab view --serve: the page and ranges of its blobs, for who has the address only."""

import contextlib
import http.client
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from viewer_pages import PATIENCE_MS, dumped, toy_steps

import memlab
from memlab import _core
from memlab._cli import main
from memlab._page import page as _page
from memlab._serve import connections, serve

ROOT = Path(__file__).resolve().parents[2]
BLOBS = [b"", bytes(range(256)) * 5000, b"x", b"<script>"]
ALL = b"".join(BLOBS)


@contextlib.contextmanager
def serving():
    server = serve.Server(b'{"format":2}', BLOBS, title="a&b", notes=["cut off"])
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield urlsplit(server.url)
    finally:
        server.close()
        thread.join()


@pytest.fixture(scope="module")
def url():
    with serving() as url:
        yield url


def ask(url, path="", method="GET", headers=(), host=None):
    """(status, headers, body) of PATH, which is beside the page but where it begins with
    a slash."""
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=60)
    with contextlib.closing(connection):
        path = path if path.startswith("/") else url.path + path
        connection.putrequest(method, path, skip_host=True)
        for name, text in [("Host", url.netloc if host is None else host), *headers]:
            connection.putheader(name, text)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_the_page_is_the_one_for_its_blobs(url):
    assert re.fullmatch(r"/[A-Za-z0-9_-]{32}/", url.path) and url.hostname == "127.0.0.1"
    status, headers, page = ask(url)
    assert status == 200
    offsets = [0, 0, 1_280_000, 1_280_001, 1_280_009]
    assert page == _page.served(b'{"format":2}', offsets, title="a&b", notes=["cut off"])
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert not any(name.lower().startswith("access-control") for name in headers)
    assert ask(url, host=f"localhost:{url.port}")[2] == page


@pytest.mark.parametrize(
    "asked, first, last",
    [
        ("0-0", 0, 0), ("0-1279999", 0, 1_279_999), ("5-1279999", 5, 1_279_999),
        ("1280001-1280008", 1_280_001, 1_280_008), ("1280008-", 1_280_008, 1_280_008),
        ("0-999999999999999999", 0, 1_280_008), ("007-9", 7, 9),
    ],
)
def test_ranges(url, asked, first, last):
    status, headers, body = ask(url, "blobs", headers=[("Range", f"bytes={asked}")])
    assert (status, body) == (206, ALL[first : last + 1])
    assert headers["Content-Range"] == f"bytes {first}-{last}/1280009"
    assert headers["Content-Length"] == str(last + 1 - first)


@pytest.mark.parametrize(
    "asked",
    ["bytes=1280009-", "bytes=1280009-1280010", "bytes=5-4", "bytes=-5", "bytes=",
     "bytes=a-b", "bytes=0-0,2-3", "bytes= 0-1", "items=0-1", "0-1", "bytes=0x1-2",
     "bytes=" + "9" * 40 + "-", "bytes=\xb2-3", ""],
)
def test_what_is_no_range_of_it_is_refused(url, asked):
    status, headers, body = ask(url, "blobs", headers=[("Range", asked)])
    assert (status, body) == (416, b"")
    assert headers["Content-Range"] == "bytes */1280009"


def test_two_ranges_are_refused(url):
    both = [("Range", "bytes=0-1"), ("Range", "bytes=2-3")]
    assert ask(url, "blobs", headers=both)[0] == 416


def test_all_of_it_without_a_range_and_nothing_but_headers_for_head(url):
    assert ask(url, "blobs")[::2] == (200, ALL)
    status, headers, body = ask(url, "blobs", method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "1280009")
    part = [("Range", "bytes=3-7")]
    status, headers, body = ask(url, "blobs", method="HEAD", headers=part)
    assert (status, body, headers["Content-Length"]) == (206, b"", "5")
    status, headers, body = ask(url, method="HEAD")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 1000


def test_who_has_not_the_address_gets_nothing(url):
    token = url.path.strip("/")
    other = ("A" if token[0] != "A" else "B") + token[1:]
    for path in (
        "/", "/blobs", f"/{other}/", f"/{other}/blobs", f"/{token}", f"/{token[:-1]}/",
        f"/{token}//", f"/{token}/blobs/", f"/{token}/.", f"/{token}/../{token}/",
        f"/{token}/?a", f"/{token}/x", f"/{token}/blobs?a", "/favicon.ico",
        f"/%{ord(token[0]):02x}{token[1:]}/", "/etc/passwd", "/../../etc/passwd",
    ):
        status, _, body = ask(url, path)
        assert (status, body) == (403, b""), path


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1", "localhost", None, 2])
def test_who_comes_by_another_name_gets_nothing(url, host):
    """A page elsewhere may have made its name lead to 127.0.0.1."""
    extra = ()
    if host == 2:
        host, extra = None, [("Host", url.netloc)]
    elif host is None:
        host = f"evil.example:{url.port}"
    for path in ("", "blobs"):
        assert ask(url, path, host=host, headers=extra)[::2] == (403, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(url, method):
    status, headers, body = ask(url, method=method)
    assert (status, headers["Allow"], body) == (405, "GET, HEAD", b"")
    assert not any(name.lower().startswith("access-control") for name in headers)


def raw(url, data):
    """All that comes back for DATA, which nothing follows."""
    with socket.create_connection(("127.0.0.1", url.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_what_is_no_request_is_refused(url):
    path, host = url.path.encode(), url.netloc.encode()
    assert b" 403 " in raw(url, b"GET %s HTTP/1.1\r\n\r\n" % path)
    assert b" 501 " in raw(url, b"BREW %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path, host))
    assert b" 403 " in raw(
        url, b"GET http://%s%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, path, host)
    )
    for data in (b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                 b"GET /" + b"a" * 70_000, b"GET \xff\xfe HTTP/1.1\r\n\r\n", b""):
        assert b" 200 " not in raw(url, data)
    assert ask(url)[0] == 200


def test_several_requests_on_one_connection(url):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    with contextlib.closing(connection):
        for first in range(3):
            headers = {"Range": f"bytes={first}-{first + 300_000}"}
            connection.request("GET", url.path + "blobs", headers=headers)
            assert connection.getresponse().read() == ALL[first : first + 300_001]


def test_connections_are_limited_and_come_free_again(monkeypatch):
    monkeypatch.setattr(connections, "_MOST_TRUSTED", 3)
    with serving() as url:
        kept = []
        for _ in range(3):
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
            connection.request("HEAD", url.path)
            connection.getresponse().read()
            kept.append(connection)
        with pytest.raises((OSError, http.client.HTTPException)):
            ask(url)
        # A stranger's is no place of theirs.
        assert b" 403 " in raw(url, b"GET / HTTP/1.1\r\n\r\n")
        for connection in kept:
            connection.close()
        # The server sees their end in its own time.
        status = None
        while status is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status = ask(url)[0]
        assert status == 200


def test_who_has_not_the_address_holds_no_place():
    """Slow connections, half a head each, as many as anybody likes."""
    with serving() as url, contextlib.ExitStack() as stack:
        threads = threading.active_count()
        for number in range(3 * connections._MOST_STRANGERS):
            slow = stack.enter_context(socket.create_connection((url.hostname, url.port)))
            slow.send((b"GET / HT", b"", b"GET / HTTP/1.1\r\n\r\n")[number % 3])
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        with contextlib.closing(connection):
            for _ in range(2):
                # Also on a connection that was there before more strangers came.
                connection.request("GET", url.path + "blobs")
                assert connection.getresponse().read() == ALL
                for _ in range(3 * connections._MOST_STRANGERS):
                    slow = socket.create_connection((url.hostname, url.port))
                    stack.enter_context(slow)
        assert threading.active_count() <= threads


def test_a_head_has_its_time_and_no_more(monkeypatch):
    """However often a byte of it comes."""
    server = serve.Server(b"{}", BLOBS)
    inner = server.server
    one, other = socket.socketpair()
    with one, other, selectors.DefaultSelector() as inner._selector:
        inner._selector.register(one, selectors.EVENT_READ)
        connection = connections._Connection(one)
        connection.socket.setblocking(False)
        inner._connections.append(connection)
        deadline = connection.deadline
        for byte in b"GET / HTTP/1.1\r\nA: b":
            other.send(bytes([byte]))
            inner._advance(connection)
        assert connection.asked.endswith(b"A: b") and connection.deadline == deadline
        # Nothing comes of the selector, but the time is over.
        monkeypatch.setattr(connections.time, "monotonic", lambda: deadline)
        inner._turn()
        assert inner._connections == [] and other.recv(1) == b""
    inner.socket.close()


def test_a_head_that_is_too_long_ends_the_connection(url):
    with socket.create_connection((url.hostname, url.port), timeout=60) as long:
        with contextlib.suppress(ConnectionError):
            while True:
                long.sendall(b"a" * 65_536)
    assert ask(url)[0] == 200


def test_requests_at_once_are_answered_in_turn(url):
    """Pipelined: what comes before the first was answered."""
    host = url.netloc.encode()
    one = b"GET %sblobs HTTP/1.1\r\nHost: %s\r\nRange: bytes=%d-%d\r\n\r\n"
    asked = b"".join(one % (url.path.encode(), host, i, i + 3) for i in range(5))
    answer = raw(url, asked)
    assert answer.count(b" 206 ") == 5
    assert answer.endswith(ALL[4:8])


def test_the_data_has_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving() as url:
        assert list(tmp_path.iterdir()) == []
        assert ask(url, "blobs")[2] == ALL
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(memlab.Error, match="no room for the page's data .* set TMPDIR"):
        serve.Server(b"{}", BLOBS)


def command(*args, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "memlab", "view", *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, **more,
    )


@pytest.fixture
def recorded(tmp_path):
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script") as snapshot:
        script.emit("segment_alloc", 1 << 30, 2 << 20)
        script.emit("alloc", 1 << 30, 1 << 20)
    script.reset()
    snapshot.save(tmp_path / "run.pickle")
    return tmp_path / "run.pickle"


def test_the_command_serves_until_it_is_interrupted(recorded, tmp_path):
    with command("--serve", recorded, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            url = urlsplit(process.stdout.readline().removeprefix("Page: ").strip())
            assert "until Ctrl-C" in process.stdout.readline()
            status, _, page = ask(url)
            about = re.search(rb'id="memlab-about">(.*?)</script>', page)[1]
            assert status == 200 and json.loads(about)["title"] == "run.pickle"
            # One that is open does not keep it.
            with socket.create_connection((url.hostname, url.port), timeout=60):
                process.send_signal(signal.SIGINT)
                assert process.wait(60) == 0
        finally:
            process.kill()
    with pytest.raises(ConnectionRefusedError):
        ask(url)
    assert sorted(tmp_path.iterdir()) == [recorded]


@pytest.mark.parametrize(
    "args, said", [(["--serve"], "needs a FILE"), (["--serve", "--out", "x", "y"], "--out")]
)
def test_what_makes_no_sense_is_wrong_usage(args, said):
    with command(*args, stderr=subprocess.PIPE) as process:
        assert said in process.stderr.read()
    assert process.returncode == 2


def test_a_browser_shows_it_with_ranges_alone(chromium):
    """And asks for nothing else."""
    toy = toy_steps(400)
    recording = _core.Recording.from_bytes(dumped(toy.snapshot()))
    server = serve.Server(*recording.page_data(), title="toy")
    thread = threading.Thread(target=server.run)
    thread.start()
    context = chromium.new_context(viewport={"width": 1280, "height": 720})
    try:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        answers, errors = set(), []
        page.on("response", lambda answer: answers.add((answer.url, answer.status)))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server.url + "#event=9")
        # What only a chunk tells.
        assert toy.totals[9][0] == 8 * 65536
        text = f"of {len(toy.events)} · 63 µs · 512 KiB allocated"
        page.wait_for_function(
            "text => document.body.innerText.includes(text)", arg=text
        )
        icon = server.url[: server.url.index("/", 7)] + "/favicon.ico"
        assert answers - {(icon, 403)} == {
            (server.url, 200), (server.url + "blobs", 206)
        }
        assert errors == []
    finally:
        context.close()
        server.close()
        thread.join()


def test_a_long_page_names_the_way_without(recorded, monkeypatch, capsys):
    out = recorded.with_name("page.html")
    assert main.main(["view", str(recorded), "--out", str(out)]) == 0
    assert capsys.readouterr() == (f"Page: {out}\n", "")
    monkeypatch.setattr(_page, "LONG_BYTES", 10)
    assert main.main(["view", str(recorded), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out == f"Page: {out}\n"
    assert "opens it slowly" in said.err and f"view --serve {recorded}" in said.err
