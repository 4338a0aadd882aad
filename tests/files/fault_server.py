"""A store of objects on this machine that fails as it is told, and fsspec's way to it.

An upload has steps: "look" (is the key free), "put", and where the store shows what it has
of an upload that is under way, "check" (is all there) and "move" (to its key).  What a
request meets is the next in `faults[step]`, or what stays there for good.  Answers quote
what a careless store's may: the URL with its credentials, and a token.
"""

import contextlib
import http.client
import http.server
import os
import socket
import struct
import threading
from urllib.parse import urlsplit

import fsspec

# What no message may have.
SECRETS = ("user-7c1", "password-5e8", "signature-b22", "token-d90")


class Server:
    """Serves on a thread until close(); `objects` has what is stored, by key."""

    def __init__(self):
        self.release = threading.Event()
        self.begin()
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.daemon_threads = True
        self._http.store = self
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def begin(self):
        """Anew: nothing is stored, nothing fails, nobody hangs."""
        self.release.set()
        self.objects = {}
        self.requests = []  # (step, key)
        self.faults = {}  # step -> a list to be used up, or one fault for good
        self.on_put = None  # called when an upload has arrived
        self.hanging = threading.Event()
        self.release = threading.Event()

    def close(self):
        self.release.set()
        self._http.shutdown()
        self._http.server_close()

    def uri(self, key, scheme="slow"):
        user, password, signature, _ = SECRETS
        port = self.port
        return f"{scheme}://{user}:{password}@127.0.0.1:{port}/{key}?sig={signature}"

    def next_fault(self, step):
        fault = self.faults.get(step)
        if isinstance(fault, list):
            return fault.pop(0) if fault else None
        return fault

    def hang(self):
        self.hanging.set()
        self.release.wait()


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format, *arguments):
        pass

    def do_HEAD(self):
        key = self.key()
        if self.fails("check" if ".memlab-" in key else "look"):
            return
        if key in self.store.objects:
            self.answer(200, length=len(self.store.objects[key]))
        else:
            self.answer(404)

    do_GET = do_HEAD

    def do_PUT(self):
        fault = self.fault("put")
        if fault in ("half", "stuck", "short"):
            self.half(fault)
            return
        body = self.body()
        if not self.fails("put", fault):
            if self.store.on_put:
                self.store.on_put()
            self.store.objects[self.key()] = body
            if fault == "lost":
                return self.reset()
            self.answer(201)

    def half(self, fault):
        """Half arrives; a store that is not whole has it."""
        body = self.rfile.read(int(self.headers["Content-Length"]) // 2)
        if fault == "short" or not self.headers.get("X-Whole"):
            self.store.objects[self.key()] = body
        if fault == "stuck":
            self.store.hang()
        if fault == "short":
            self.rfile.read(int(self.headers["Content-Length"]) - len(body))
            return self.answer(201)
        self.reset()

    def do_MOVE(self):
        fault = self.fault("move")
        if not self.fails("move", fault):
            to = self.headers["Destination"]
            self.store.objects[to] = self.store.objects.pop(self.key())
            self.reset() if fault == "lost" else self.answer(201)

    def do_DELETE(self):
        if not self.fails("delete"):
            there = self.store.objects.pop(self.key(), None)
            self.answer(404 if there is None else 204)

    @property
    def store(self):
        return self.server.store

    def key(self):
        return urlsplit(self.path).path.lstrip("/")

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            return b"".join(self.chunks())
        return self.rfile.read(int(self.headers["Content-Length"]))

    def chunks(self):
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def fault(self, step):
        self.store.requests.append((step, self.key()))
        return self.store.next_fault(step)

    def fails(self, step, fault="ask"):
        fault = self.fault(step) if fault == "ask" else fault
        if isinstance(fault, int):
            self.answer(fault)
        elif fault == "reset":
            self.reset()
        elif fault == "redirect":
            self.send_response(302)
            self.send_header("Location", f"/elsewhere/{self.key()}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif fault == "nonsense":
            self.wfile.write(b"\x00\xff SSH-2.0 what?\r\n")
            self.close_connection = True
        elif fault == "cut":
            self.wfile.write(b"HTTP/1.1 2")
            self.reset()
        elif fault == "hang":
            # A loris: an answer that has begun and never ends.
            self.wfile.write(b"HTTP/1.1 2")
            self.wfile.flush()
            self.store.hang()
            self.reset()
        else:
            return False
        return True

    def reset(self):
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()

    def answer(self, status, length=None):
        body = f"{SECRETS[3]} may not {self.path}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Authorization", f"Bearer {SECRETS[3]}")
        self.end_headers()
        if self.command != "HEAD" and length is None:
            with contextlib.suppress(OSError):
                self.wfile.write(body)
        self.close_connection = True


class StoreError(Exception):
    """What the client of a store raises, with all that it should keep to itself."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text} {SECRETS}")
        self.status = status


class Slow(fsspec.AbstractFileSystem):
    """A store that shows an object while it is uploaded, as ssh does."""

    protocol = "slow"
    cachable = False
    whole = False

    def __init__(self, address=None, **options):
        super().__init__(**options)
        self.address = address

    @classmethod
    def _strip_protocol(cls, path):
        return urlsplit(path).path.strip("/") if "://" in path else path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        parts = urlsplit(path)
        return {"address": (parts.hostname, parts.port)}

    def request(self, method, key, body=None, **headers):
        connection = http.client.HTTPConnection(*self.address)
        with contextlib.closing(connection):
            connection.request(method, f"/{key}?sig={SECRETS[2]}", body, headers)
            answer = connection.getresponse()
            text = "" if method == "HEAD" else answer.read().decode()
        if answer.status == 403:
            raise PermissionError(f"{text} {SECRETS}")
        if answer.status == 404:
            raise FileNotFoundError(f"{text} {SECRETS}")
        if answer.status >= 300:
            raise StoreError(answer.status, text)
        return answer

    def info(self, path, **kwargs):
        answer = self.request("HEAD", path)
        size = int(answer.headers["Content-Length"])
        return {"name": path, "size": size, "type": "file"}

    def put_file(self, lpath, rpath, **kwargs):
        with open(lpath, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            headers = {"Content-Length": str(size)}
            if self.whole:
                headers["X-Whole"] = "1"
            self.request("PUT", rpath, file.read(size), **headers)

    def mv(self, path1, path2, **kwargs):
        self.request("MOVE", path1, Destination=path2)

    def rm_file(self, path):
        self.request("DELETE", path)

    def makedirs(self, path, exist_ok=False):
        pass


class Whole(Slow):
    """A store in which an object appears when it is complete, as in S3."""

    protocol = "s3"
    whole = True


def register():
    """fsspec knows both stores."""
    fsspec.register_implementation("slow", Slow, clobber=True)
    fsspec.register_implementation("s3", Whole, clobber=True)


@contextlib.contextmanager
def registered():
    """fsspec knows both stores meanwhile."""
    from fsspec.registry import _registry

    before = dict(_registry)
    register()
    yield
    _registry.clear()
    _registry.update(before)
