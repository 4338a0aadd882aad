"""Uploads: each step meets each fault, and neither training nor key nor secret suffers."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from modes import NEW

from memlab._files import store as _store
from memlab._files import upload

fsspec = pytest.importorskip("fsspec", reason='pip install "memlab[remote]"')
from fault_server import SECRETS, Server, registered  # noqa: E402

CONTENT = bytes(range(256)) * 300
PATIENCE = 20  # seconds after which a test that should go on fails

# By scheme: the steps of an upload that asks whether the key is free.
STEPS = {"slow": ["look", "put", "check", "move"], "s3": ["look", "put"]}
PASSING = ["reset", "cut", "nonsense", "redirect", "refused", "dns"]
PASSING += [408, 429, 500, 502, 503]
OF_PUT = ["half", "short", "lost", "changing", "shrinking"]
FINAL = [401, 403, 404, 405]


@pytest.fixture(scope="module")
def started():
    server = Server()
    with registered():
        yield server
    server.close()


@pytest.fixture
def server(started):
    yield started
    started.begin()


@pytest.fixture
def said(monkeypatch):
    said = []
    monkeypatch.setattr(upload, "tell", said.append)
    monkeypatch.setenv("MEMLAB_TEST_TOKEN", SECRETS[3])
    yield said
    for text in said:
        assert not [secret for secret in SECRETS if secret in text], text


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rank0.4.pickle"
    path.write_bytes(CONTENT)
    return path


class Client:
    """A queue that waits for nothing, and what it would have waited."""

    def __init__(self, chance=0.5):
        self.waits = []
        self.queue = upload.Queue(chance=lambda: chance, wait=self.waits.append)

    def send(self, path, uri, overwrite=False):
        self.queue.send(path, uri, overwrite)
        assert self.queue.flush(PATIENCE)


def meet(server, step, fault, file, monkeypatch, once):
    """STEP of the uploads to come meets FAULT, once or each time."""
    count = [0]

    def met(*arguments):
        count[0] += 1
        return not once or count[0] == 1

    if fault in ("refused", "dns"):
        # Before the server: its step is the next request, of which none arrives.
        order = STEPS["slow"].index(step)
        real = socket.create_connection

        def connect(*arguments, **options):
            count[0] += 1
            at_step = count[0] == order + 1 if once else count[0] > order
            if not at_step:
                return real(*arguments, **options)
            if fault == "dns":
                raise socket.gaierror(socket.EAI_AGAIN, f"no such host {SECRETS}")
            raise ConnectionRefusedError(111, f"refused {SECRETS}")

        monkeypatch.setattr(socket, "create_connection", connect)
    elif fault in ("changing", "shrinking"):

        def change():
            if met():
                with open(file, "r+b") as there:
                    there.truncate(len(CONTENT) // 2 if fault == "shrinking" else None)
                    there.seek(0, os.SEEK_END)
                    there.write(b"" if fault == "shrinking" else b"more")
                # The clock of the file system may not have moved on.
                os.utime(file, ns=(count[0], count[0]))

        server.on_put = change
    else:
        server.faults[step] = [fault] if once else fault


def cases(faults, of_put=()):
    for scheme, steps in STEPS.items():
        for step in steps:
            for fault in [*faults, *(of_put if step == "put" else ())]:
                # What "look" finds missing is free, and what DELETE does is no step.
                if not (fault == 404 and step == "look"):
                    # A store that says it is complete when it is not cannot be helped.
                    if not (scheme == "s3" and fault == "short"):
                        name = f"{scheme}-{step}-{fault}"
                        yield pytest.param(scheme, step, fault, id=name)
    if of_put:
        yield pytest.param("slow", "move", "lost", id="slow-move-lost")


@pytest.mark.parametrize(("scheme", "step", "fault"), [*cases(PASSING, OF_PUT)])
def test_a_fault_that_passes_delays_the_upload(
    scheme, step, fault, server, said, file, monkeypatch
):
    meet(server, step, fault, file, monkeypatch, once=True)
    client = Client()
    client.send(file, server.uri("b/key", scheme))
    assert server.objects == {"b/key": file.read_bytes()}
    assert client.waits == [0.5]
    assert said == []


@pytest.mark.parametrize(("scheme", "step", "fault"), [*cases(PASSING, OF_PUT)])
def test_a_fault_that_stays_leaves_the_key_alone_and_is_said_once(
    scheme, step, fault, server, said, file, monkeypatch
):
    meet(server, step, fault, file, monkeypatch, once=False)
    client = Client()
    client.send(file, server.uri("b/key", scheme))
    # The reply was lost, not the object.
    arrived = (scheme, fault) == ("s3", "lost") or (step, fault) == ("move", "lost")
    assert server.objects.pop("b/key", None) == (CONTENT if arrived else None)
    # A store that cannot be reached keeps what it has.
    gone = fault in ("refused", "dns") and step in ("check", "move")
    assert bool(server.objects) == gone
    assert client.waits == [0.5, 1.0, 2.0, 4.0]
    (text,) = said
    assert f"{file} was not uploaded to {scheme}://127.0.0.1:{server.port}/b/key:" in text
    assert "(5 attempts)" in text
    assert file.exists()


@pytest.mark.parametrize(("scheme", "step", "fault"), [*cases(FINAL)])
def test_a_refusal_is_not_tried_again(scheme, step, fault, server, said, file):
    server.faults[step] = fault
    client = Client()
    client.send(file, server.uri("b/key", scheme))
    assert server.objects == {}
    assert client.waits == []
    (text,) = said
    assert ("credentials" in text) == (fault in (401, 403))
    assert ("bucket" in text) == (fault == 404 and step != "check")


@pytest.mark.parametrize(("scheme", "step"), [(s, t) for s in STEPS for t in STEPS[s]])
def test_a_store_that_hangs_holds_up_nobody(scheme, step, server, said, file):
    server.faults[step] = ["hang"]
    client = Client()
    client.queue.send(file, server.uri("b/key", scheme))
    assert server.hanging.wait(PATIENCE)
    client.queue.send(file, server.uri("b/other", scheme))
    assert not client.queue.flush(0)
    assert "b/key" not in server.objects
    server.release.set()
    assert client.queue.flush(PATIENCE)
    assert server.objects == {"b/key": CONTENT, "b/other": CONTENT}
    assert said == []


@pytest.mark.parametrize("scheme", STEPS)
def test_what_was_there_stays_where_an_upload_fails(scheme, server, said, file):
    server.objects["b/key"] = b"before"
    server.faults["put"] = "half"
    Client().send(file, server.uri("b/key", scheme), overwrite=True)
    assert server.objects == {"b/key": b"before"}
    server.faults.clear()
    Client().send(file, server.uri("b/key", scheme), overwrite=True)
    assert server.objects == {"b/key": CONTENT}


@pytest.mark.parametrize("scheme", STEPS)
def test_without_overwrite_a_key_that_is_there_stays(scheme, server, said, file):
    server.objects["b/key"] = b"before"
    Client().send(file, server.uri("b/key", scheme))
    assert server.objects == {"b/key": b"before"}
    (text,) = said
    assert "it is there already; overwrite=True replaces it" in text


def test_a_temporary_that_cannot_be_removed_is_not_the_key(server, said, file):
    server.faults = {"move": 403, "delete": 403}
    Client().send(file, server.uri("b/key"))
    (key,) = server.objects
    assert key.startswith("b/key.memlab-") and key.endswith(".tmp")


def test_a_full_queue_is_said_and_the_files_are_named_at_the_end(server, said, tmp_path):
    server.faults["look"] = ["hang"]
    client = Client()
    names = [tmp_path / f"{i}" for i in range(upload._MOST_WAITING + 4)]
    for name in names:
        name.write_bytes(b"")
        client.queue.send(name, server.uri(f"b/{name.name}"))
        # One is under way, the others wait.
        assert server.hanging.wait(PATIENCE)
    assert len(said) == 1 and f"{names[-3]} was not uploaded" in said[0]
    assert f"{upload._MOST_WAITING} others are waiting" in said[0]
    server.release.set()
    assert client.queue.flush(PATIENCE)
    assert set(server.objects) == {f"b/{name.name}" for name in names[:-3]}
    client.queue.end()
    assert said[1].endswith(f"still on this machine: {names[-2]}, {names[-1]}")
    client.queue.end()
    assert len(said) == 2


def test_a_file_is_uploaded_as_it_was_when_it_was_sent(server, said, file, tmp_path):
    server.faults["look"] = ["hang"]
    client = Client()
    gone, new = tmp_path / "gone", tmp_path / "new"
    gone.write_bytes(b"gone")
    new.write_bytes(b"new")
    client.queue.send(file, server.uri("b/first"))
    assert server.hanging.wait(PATIENCE)
    client.queue.send(file, server.uri("b/second"))
    client.queue.send(gone, server.uri("b/gone"))
    gone.unlink()
    os.replace(new, file)
    client.queue.send(file, server.uri("b/third"))
    server.release.set()
    assert client.queue.flush(PATIENCE)
    stored = {"b/first": CONTENT, "b/second": CONTENT, "b/gone": b"gone", "b/third": b"new"}
    assert server.objects == stored and said == []


def test_delays_double_up_to_a_limit_and_are_drawn_from_all_below(
    server, said, file, monkeypatch
):
    monkeypatch.setattr(upload, "_ATTEMPTS", 8)
    server.faults["look"] = 503
    for chance in (0.0, 0.25, 1.0):
        client = Client(chance)
        client.send(file, server.uri("b/key"))
        assert client.waits == [chance * s for s in (1, 2, 4, 8, 16, 30, 30)]


def test_no_thread_stays_and_no_file_is_open(server, said, file):
    def opened():
        return [os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.exists()]

    client = Client()
    for number in range(3):
        server.faults["put"] = [403] if number == 1 else []
        client.send(file, server.uri(f"b/{number}"))
    assert not [t for t in threading.enumerate() if t.name == "memlab-upload"]
    assert str(file) not in opened()


def test_a_folder_of_this_machine(said, file, tmp_path):
    key = tmp_path / "there" / "deeper" / "key"
    client = Client()
    client.send(file, f"file://{key}")
    assert key.read_bytes() == CONTENT and key.stat().st_mode & 0o777 == NEW
    client.send(file, f"file://{key}")
    assert len(said) == 1 and "overwrite=True" in said.pop()
    file.write_bytes(b"new")
    client.send(file, f"file://{key}", overwrite=True)
    assert key.read_bytes() == b"new" and key.stat().st_mode & 0o777 == NEW
    client.send(file, f"file://{key.parent}", overwrite=True)
    assert "there is a folder of that name" in said.pop()
    assert [p.name for p in key.parent.iterdir()] == ["key"] and not said


def test_a_store_in_memory(said, file):
    Client().send(file, "memory://memlab-test/a/key.html")
    store = fsspec.filesystem("memory")
    assert store.find("/memlab-test") == ["/memlab-test/a/key.html"]
    assert store.cat_file("/memlab-test/a/key.html") == CONTENT


@pytest.mark.parametrize("fault", [None, "redirect", 403, 500, "reset"])
def test_a_server_that_takes_put(fault, server, said, file):
    pytest.importorskip("aiohttp")
    server.faults["put"] = fault
    client = Client()
    client.send(file, server.uri("b/key", "http"))
    assert server.objects == ({} if fault else {"b/key": CONTENT})
    assert len(said) == bool(fault)
    # Requests are not counted: aiohttp itself may send one again that was reset.
    assert len(client.waits) == (4 if fault in (500, "reset") else 0)


def test_an_http_server_that_fails_is_no_free_key(server, said, file):
    pytest.importorskip("aiohttp")
    server.objects["b/key"] = b"before"
    server.faults["look"] = 503
    Client().send(file, server.uri("b/key", "http"))
    assert server.objects == {"b/key": b"before"} and "503" in said[0]


def test_what_is_missing_is_named(said, file, monkeypatch, tmp_path):
    client = Client()
    client.send(file, "nonsense://b/key")
    client.send(file, "b/key")
    client.send(tmp_path / "absent", "memory://b/key")
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    client.send(file, "gs://b/key")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    client.send(file, "s3://b/key")
    client.send(file, "s3://b/key2")
    for text, words in zip(
        said,
        [
            "fsspec knows no nonsense://",
            "it is no URI with ://; write for example s3://bucket/name",
            "it cannot be read: No such file or directory",
            "gs:// needs a package: Please install gcsfs",
            'pip install "memlab[remote]"',
        ],
        strict=True,
    ):
        assert words in text


class Unspeakable(BaseException):
    @property
    def response(self):
        raise self


def test_an_error_that_cannot_be_looked_at_ends_no_thread(said, file, monkeypatch):
    def attempt(self):
        raise Unspeakable

    monkeypatch.setattr(_store.Upload, "attempt", attempt)
    Client().send(file, "s3://b/key")
    assert f"{file} was not uploaded to s3://b/key: Unspeakable" in said[0]


def test_what_is_no_path_is_said(said):
    Client().send(3, None)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket/a/b.html", "s3://bucket/a/b.html"),
        ("s3://KEY:SECRET@bucket/a", "s3://bucket/a"),
        ("s3://KEY:SEC/RET@bucket/a", "s3://bucket/a"),
        ("s3://KEY:SEC/RET", "s3://"),
        ("s3://KEY:12/34@bucket/a", "s3://bucket/a"),
        ("s3://KEY:S?ECR@ET@bucket/a", "s3://"),
        ("s3://TOKEN@bucket", "s3://bucket"),
        ("https://host:8080/a?X-Amz-Signature=1&b=2#c", "https://host:8080/a"),
        ("https://host?sig=a/b://c", "https://host"),
        ("ssh://me@host/home/a@b/c", "ssh://host/home/a@b/c"),
        ("file:///home/a@b/c", "file:///home/a@b/c"),
        ("sftp://u:p@ss@host:22/k", "sftp://host:22/k"),
        ("a/b", "a/b"),
    ],
)
def test_a_uri_is_shown_without_credentials(uri, shown):
    assert _store.shown(uri) == shown


# ---- The end of a program ----

PROGRAM = """
import os, sys
sys.path[:0] = [{tests!r}]
from memlab._files import upload
import fault_server
upload._queue._patience = float(sys.argv[3])
fault_server.register()
how, path, _, *uris = sys.argv[1:]
if how == "late":
    upload.at_end(lambda: upload.send(path, uris[0]))
    upload.at_end(lambda: 1 / 0)
for uri in uris:
    if how != "late":
        upload.send(path, uri)
if how == "fork":
    child = os.fork()
    if child == 0:
        assert not upload.flush(0)
        upload.send(path, uris[0] + "-child")
        sys.exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
if how == "hang":
    sys.stdin.read()  # until the store has been asked
print("trained", flush=True)
if how == "raise":
    raise KeyError("the program's own")
"""


def start(how, file, patience, *uris):
    program = PROGRAM.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-c", program, how, file, str(patience), *uris],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert out == "trained\n", err
    assert not [secret for secret in SECRETS if secret in err]
    return process.returncode, err


def test_the_end_of_a_program_waits_for_its_uploads(server, file):
    uris = [server.uri("b/1"), server.uri("b/2", "s3")]
    assert ended(start("raise", file, 60, *uris))[0] == 1
    assert server.objects == {"b/1": CONTENT, "b/2": CONTENT}


def test_what_is_sent_at_the_end_is_uploaded(server, file):
    scheme = "http" if importlib.util.find_spec("aiohttp") else "s3"
    # A name, which http looks up in a pool of threads.
    uri = server.uri("b/1", scheme).replace("127.0.0.1", "localhost")
    status, err = ended(start("late", file, 60, uri))
    assert status == 0 and server.objects == {"b/1": CONTENT}
    assert "the last steps at the end of the program failed: division by zero" in err


def test_a_store_that_hangs_does_not_keep_the_program(server, file):
    assert upload._EXIT_SECONDS == 5.0
    server.faults["put"] = "stuck"
    uris = [server.uri("b/1"), server.uri("b/2")]
    process = start("hang", file, 0.1, *uris)
    assert server.hanging.wait(PATIENCE)
    status, err = ended(process)
    assert status == 0
    assert err.count(f"still on this machine: {file}, {file}") == 1
    (key,) = server.objects
    assert key.startswith("b/1.memlab-")


@pytest.mark.parametrize("scheme", STEPS)
def test_a_program_that_is_killed_leaves_no_part_under_the_key(scheme, server, file):
    server.faults["put"] = "stuck"
    process = start("kill", file, 60, server.uri("b/key", scheme))
    assert server.hanging.wait(PATIENCE)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert "b/key" not in server.objects
    assert len(server.objects) == (scheme == "slow")


def test_a_forked_child_uploads_nothing(server, file):
    status, err = ended(start("fork", file, 60, server.uri("b/key")))
    assert status == 0 and server.objects == {"b/key": CONTENT}
    assert "a forked child of a process that uploads cannot" in err
