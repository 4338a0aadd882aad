"""HTTP connections, none of which can block a thread, a slot or the process.

Owns the listening socket, and the one loop that reads request heads and sends answers.
A client that sends no complete head in time is disconnected.  So is the oldest of too
many untrusted ones. The handler makes the answers.
"""

from __future__ import annotations

import http.server
import io
import re
import selectors
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD_SECONDS = 10.0
# For a trusted one to take the next piece or to send another request.
_IDLE_SECONDS = 60.0
_HEAD_BYTES = 1 << 16
# Untrusted: the oldest makes room.  Trusted: a browser opens six.
_MOST_STRANGERS = 32
_MOST_TRUSTED = 32
_PAUSE_SECONDS = 1.0

_END = re.compile(rb"\r?\n\r?\n")


class _Connection:
    def __init__(self, channel):
        self.socket = channel
        self.asked = bytearray()
        self.piece = memoryview(b"")
        self.pieces = None  # an iterator, while an answer goes out
        self.keep = False
        self.trusted = False
        self.deadline = time.monotonic() + _HEAD_SECONDS


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request with a complete head: the output is what was written to
    wfile, then the pieces of body.
    """

    body: Iterator[bytes] = iter(())

    def __init__(self, head, server):
        self._head = head
        self.trusts = False
        super().__init__(None, ("", 0), server)

    def setup(self):
        self.rfile, self.wfile = io.BytesIO(self._head), io.BytesIO()

    def handle(self):
        self.close_connection = True
        self.handle_one_request()

    def finish(self):
        pass

    def log_message(self, format, *arguments):
        pass


class Server:
    """Serves at ADDRESS, (host, port), by HANDLER once run() is called.  Raises
    OSError.
    """

    def __init__(self, address, handler):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.closed = threading.Event()
        self.socket = socket.create_server(address, family=family)
        self.socket.setblocking(False)
        self.server_address = self.socket.getsockname()
        self._handler = handler
        self._selector = None
        self._connections = []  # the oldest first

    def run(self) -> None:
        """Serves until it is closed or interrupted."""
        with self.socket, selectors.DefaultSelector() as self._selector:
            self._selector.register(self.socket, selectors.EVENT_READ)
            try:
                while not self.closed.is_set():
                    self._turn()
            finally:
                for connection in list(self._connections):
                    self._drop(connection)

    def close(self) -> None:
        """Ends run(), from another thread."""
        self.closed.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # run() noticed first, and has closed the socket.
            pass

    def _turn(self):
        ends = [connection.deadline for connection in self._connections]
        patience = max(0.0, min(ends) - time.monotonic()) if ends else None
        for key, _ in self._selector.select(patience):
            if key.data is None:
                self._accept()
            elif key.data in self._connections:
                self._advance(key.data)
        now = time.monotonic()
        for connection in [c for c in self._connections if c.deadline <= now]:
            self._drop(connection)

    def _accept(self):
        try:
            channel, _ = self.socket.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                # If the program has no descriptor left, the client still waits:
                # retrying without a pause would use a whole core.
                self.closed.wait(_PAUSE_SECONDS)
            return
        channel.setblocking(False)
        connection = _Connection(channel)
        try:
            self._selector.register(channel, selectors.EVENT_READ, connection)
        except OSError:
            channel.close()
            return
        self._connections.append(connection)
        strangers = [c for c in self._connections if not c.trusted]
        if len(strangers) > _MOST_STRANGERS:
            self._drop(strangers[0])

    def _advance(self, connection):
        """Advances one step, so that each connection has its turn."""
        try:
            if connection.pieces is None:
                self._receive(connection)
            else:
                self._send(connection)
        except BlockingIOError:
            pass
        except Exception:
            # The client is gone, or sent a request that no handler understands.
            self._drop(connection)

    def _receive(self, connection):
        data = connection.socket.recv(_HEAD_BYTES)
        connection.asked += data
        if not data or not self._answer(connection) and len(connection.asked) > _HEAD_BYTES:
            self._drop(connection)

    def _answer(self, connection):
        """Begins the answer to the request; False if its head is incomplete."""
        end = _END.search(connection.asked)
        if end is None:
            return False
        head = bytes(connection.asked[: end.end()])
        del connection.asked[: end.end()]
        handler = self._handler(head, self)
        if handler.trusts and not connection.trusted:
            if sum(c.trusted for c in self._connections) >= _MOST_TRUSTED:
                self._drop(connection)
                return True
            connection.trusted = True
        connection.keep = connection.trusted and not handler.close_connection
        connection.piece = memoryview(handler.wfile.getvalue())
        connection.pieces = handler.body
        self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        self._extend(connection)
        return True

    def _send(self, connection):
        if not connection.piece:
            piece = next(connection.pieces, None)
            if piece is None:
                self._finish(connection)
                return
            connection.piece = memoryview(piece)
        sent = connection.socket.send(connection.piece)
        connection.piece = connection.piece[sent:]
        self._extend(connection)

    def _finish(self, connection):
        if not connection.keep:
            self._drop(connection)
            return
        connection.pieces = None
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        # The client may have sent the next request already.
        self._answer(connection)

    def _extend(self, connection):
        # The answer to an untrusted request is short: its time limit is that of the
        # head.
        if connection.trusted:
            connection.deadline = time.monotonic() + _IDLE_SECONDS

    def _drop(self, connection):
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        self._selector.unregister(connection.socket)
        try:
            # Also for a forked child, which has it too.
            connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.socket.close()
