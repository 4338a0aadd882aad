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


class Server:
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
        token = secrets.token_urlsafe(24)
        self._server = connections.Server(("127.0.0.1", 0), _Handler)
        port = self._server.server_address[1]
        self._server.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._server.token = token
        self._server.page = page.served(
            head, offsets, title=title, notes=notes, verdicts=verdicts
        )
        self._server.blobs = self._blobs.fileno()
        self._server.blob_bytes = offsets[-1]
        self.url = f"http://127.0.0.1:{port}/{token}/"

    def run(self) -> None:
        """Answers requests."""
        self._server.run()

    def close(self) -> None:
        """Ends run(), from another thread."""
        self._server.close()


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


class _Handler(connections.Handler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "memlab", ""

    def do_GET(self):
        self.trusts = self._allowed()
        if not self.trusts:
            self._refuse(403)
        elif self.path.endswith("/"):
            self._begin(200, "text/html; charset=utf-8", len(self.server.page))
            if self.command != "HEAD":
                self.wfile.write(self.server.page)
        else:
            self._send_blobs()

    do_HEAD = do_GET

    def _refuse_method(self):
        self._refuse(405, Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse_method

    def _allowed(self):
        """Whether the request is for one of the two paths and used this machine's
        address: not a name that an untrusted page pointed here.
        """
        hosts = self.headers.get_all("Host", ())
        token = f"/{self.server.token}/"
        paths = (token, token + "blobs")
        # Compared in constant time; paths may contain any text.
        given = self.path.encode("utf-8", "surrogateescape")
        known = [hmac.compare_digest(given, path.encode()) for path in paths]
        return any(known) and len(hosts) == 1 and hosts[0] in self.server.hosts

    def _send_blobs(self):
        size = self.server.blob_bytes
        ranges = self.headers.get_all("Range", ())
        first, last, status, said = 0, size - 1, 200, {}
        if ranges:
            match = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
            first = int(match[1]) if match else size
            last = min(last, int(match[2])) if match and match[2] else last
            if first > last:
                self._refuse(416, **{"Content-Range": f"bytes */{size}"})
                return
            status = 206
            said = {"Content-Range": f"bytes {first}-{last}/{size}"}
        said["Accept-Ranges"] = "bytes"
        self._begin(status, "application/octet-stream", last + 1 - first, **said)
        if self.command != "HEAD":
            self.body = self._chunks(first, last)

    def _chunks(self, first, last):
        while first <= last:
            chunk = os.pread(self.server.blobs, min(_CHUNK, last + 1 - first), first)
            if not chunk:
                raise Error("the file of the page's data was cut by another program: run memlab view --serve again")
            yield chunk
            first += len(chunk)

    def _begin(self, status, kind, length, **headers):
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

    def _refuse(self, status, **headers):
        # The request's body is not read.
        self.close_connection = True
        self._begin(status, "text/plain", 0, Connection="close", **headers)
