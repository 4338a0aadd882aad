"""Serves a page that is too large for one file to this machine's own browser.

Owns the server: only 127.0.0.1, a random port, and a path with a secret token, without
which there is no answer.  The page's blobs are in one file without a name; the page
requests them by byte ranges.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Sequence

from memlab._errors import Error
from memlab._page import page
from memlab._serve import connections

_CHUNK = 1 << 20
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})?", re.ASCII)


class Guarded:
    """A server of HANDLER, a GuardedHandler, for this machine alone; run() serves until it is
    interrupted or closed.

    url: the address of its first page.  Raises OSError without a port.
    """

    def __init__(self, handler: type) -> None:
        token = secrets.token_urlsafe(24)
        self.server = connections.Server(("127.0.0.1", 0), handler)
        port = self.server.server_address[1]
        self.server.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.server.token = token
        self.url = f"http://127.0.0.1:{port}/{token}/"

    def run(self) -> None:
        """Answers requests."""
        self.server.run()

    def close(self) -> None:
        """Ends run(), from another thread."""
        self.server.close()


class Server(Guarded):
    """Serves the page of HEAD and BLOBS, with arguments as in page.served(); run()
    serves until it is interrupted or closed.

    url: the page's address.  Raises OSError without a port, and Error without room for
    the page's data.
    """

    def __init__(
        self,
        head: bytes,
        blobs: Iterable[bytes],
        *,
        title: str = "",
        notes: Iterable[str] = (),
        verdicts: Sequence[Sequence[str]] = (),
    ) -> None:
        self._blobs, offsets = _stored(blobs)
        super().__init__(_Handler)
        self.server.page = page.served(
            head, offsets, title=title, notes=notes, verdicts=verdicts
        )
        self.server.blobs = self._blobs.fileno()
        self.server.blob_bytes = offsets[-1]


def _stored(blobs):
    """(a nameless file with BLOBS, where each begins and the last ends)"""
    offsets = [0]
    try:
        file = tempfile.TemporaryFile(prefix="memlab")
        for blob in blobs:
            file.write(blob)
            offsets.append(offsets[-1] + len(blob))
        file.flush()
    except OSError as error:
        raise Error(
            f"no room for the page's data in {tempfile.gettempdir()}: "
            f"{error.strerror}; set TMPDIR to a folder that has some"
        ) from None
    return file, offsets


class GuardedHandler(connections.Handler):
    """Answers GET and HEAD of those who know the token."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "memlab", ""

    def allowed_name(self):
        """What stands behind the token in the path; None: the request does not have the token,
        or is not for this machine's address but for a name that an untrusted page pointed
        here.
        """
        hosts = self.headers.get_all("Host", ())
        token = f"/{self.server.token}/".encode()
        # Compared in constant time; paths may contain any text.
        given = self.path.encode("utf-8", "surrogateescape")
        known = hmac.compare_digest(given[: len(token)], token)
        self.trusts = known and len(hosts) == 1 and hosts[0] in self.server.hosts
        return given[len(token) :].decode("utf-8", "replace") if self.trusts else None

    def page(self, content, status=200, kind="text/html; charset=utf-8"):
        """Answers with CONTENT, bytes."""
        self.begin(status, kind, len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def begin(self, status, kind, length, **headers):
        """The head of an answer of LENGTH bytes."""
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(length),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            **headers,
        }
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()

    def refuse(self, status, **headers):
        """Answers with STATUS, and ends the connection: the request's body is not read."""
        self.close_connection = True
        self.begin(status, "text/plain", 0, Connection="close", **headers)

    def _refuse_method(self):
        self.refuse(405, Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method


class _Handler(GuardedHandler):
    def do_GET(self):
        name = self.allowed_name()
        if name == "":
            self.page(self.server.page)
        elif name == "blobs":
            self._send_blobs()
        else:
            self.trusts = False
            self.refuse(403)

    do_HEAD = do_GET

    def _send_blobs(self):
        size = self.server.blob_bytes
        ranges = self.headers.get_all("Range", ())
        first, last, status, said = 0, size - 1, 200, {}
        if ranges:
            match = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
            first = int(match[1]) if match else size
            last = min(last, int(match[2])) if match and match[2] else last
            if first > last:
                self.refuse(416, **{"Content-Range": f"bytes */{size}"})
                return
            status = 206
            said = {"Content-Range": f"bytes {first}-{last}/{size}"}
        said["Accept-Ranges"] = "bytes"
        self.begin(status, "application/octet-stream", last + 1 - first, **said)
        if self.command != "HEAD":
            self.body = self._chunks(first, last)

    def _chunks(self, first, last):
        while first <= last:
            chunk = os.pread(self.server.blobs, min(_CHUNK, last + 1 - first), first)
            if not chunk:
                raise Error("the file of the page's data was cut by another program: run memlab view --serve again")
            yield chunk
            first += len(chunk)
