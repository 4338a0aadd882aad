"""memlab.metrics() against figures worked out by hand, and where it is logged."""

import contextlib
import errno
import http.client
import json
import math
import os
import re
import signal
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import memlab
from memlab import _core
from memlab._monitor import metrics as _metrics
from memlab._monitor import sinks as _sinks
from memlab._native import bridge, sources
from memlab._serve import connections, prometheus

MIB = 1 << 20

# ---- Against torch's allocator ----

PROGRAM = """
import json, sys, urllib.request, warnings
import torch, memlab
from memlab._monitor import metrics as _metrics
from memlab._native import sources

told = {}
monitor = memlab.MemoryMonitor(every=3, prometheus=0)
told["before"] = [memlab.metrics(), memlab.metrics("cuda"), memlab.metrics(7)]
told["first"] = [monitor.step(), torch.cuda.is_initialized(), monitor.address]

# Both are cut of one segment of 20 MiB.
first = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
second = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
del first
before = torch.cuda.memory_stats()
told["metrics"] = memlab.metrics()
told["unchanged"] = torch.cuda.memory_stats() == before
devices = [0, "cuda", "cuda:0", torch.device("cuda", 0)]
told["same"] = [memlab.metrics(device) == told["metrics"] for device in devices]
told["ledger"] = memlab.ledger()["lines"]["unknown_bytes"]
try:
    torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    told["after_oom"] = memlab.metrics()
torch.cuda.reset_peak_memory_stats()
told["after_reset"] = memlab.metrics()
for device in ["cpu", "cuda:9", "nothing", -1]:
    try:
        memlab.metrics(device)
    except ValueError as error:
        told.setdefault("refused", []).append(str(error))

steps = [monitor.step(step=100 + number) for number in range(4)]
told["every"] = [bool(figures) for figures in steps]
host, port = monitor.address
with urllib.request.urlopen(f"http://{host}:{port}/metrics") as page:
    told["page"] = page.read().decode()
    told["type"] = page.headers["Content-Type"]
monitor.close()

class Broken:
    def add_scalar(self, *arguments):
        raise OSError("the disk is full")
    flush = add_scalar

warnings.simplefilter("error")
monitor = memlab.MemoryMonitor(tensorboard=Broken(), device="cuda:9")
told["broken_device"] = [monitor.step(), monitor.step()]
with memlab.MemoryMonitor(tensorboard=Broken()) as monitor:
    told["broken_sink"] = [monitor.step() == memlab.metrics() for _ in range(2)]

given = memlab.Courtesy(context=True)
del second
try:
    given.yield_memory()
    told["away"] = [memlab.metrics(), memlab.metrics(0)]
    given.restore()
except memlab.Error as error:
    told["away"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(device_environment, tmp_path_factory):
    from warm import run

    program = tmp_path_factory.mktemp("metrics") / "program.py"
    program.write_text(PROGRAM)
    done = run(program, env=device_environment, cwd=program.parent)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}


@pytest.mark.cuda
def test_nothing_is_told_or_initialised_before_cuda_is_used(told):
    assert told["before"] == [{}, {}, {}]
    assert told["first"] == [{}, False, None]


@pytest.mark.cuda
def test_figures_are_torchs_and_leave_them_alone(told):
    figures = dict(told["metrics"])
    assert figures.pop("memory/unexplained_bytes", None) == told["ledger"]
    assert figures == {
        "memory/allocated_bytes": 8 * MIB,
        "memory/peak_allocated_bytes": 12 * MIB,
        "memory/active_bytes": 8 * MIB,
        "memory/peak_active_bytes": 12 * MIB,
        # The rest of the segment, and the block that was freed.
        "memory/inactive_split_bytes": 12 * MIB,
        "memory/peak_inactive_split_bytes": 16 * MIB,
        "memory/reserved_bytes": 20 * MIB,
        "memory/peak_reserved_bytes": 20 * MIB,
        "memory/fragmentation": 12 / 20,
        "memory/alloc_retries": 0,
        "memory/ooms": 0,
    }
    assert told["unchanged"] and told["same"] == [True] * 4


@pytest.mark.cuda
def test_an_out_of_memory_and_a_reset_of_the_program_are_seen(told):
    after, reset = told["after_oom"], told["after_reset"]
    assert (after["memory/alloc_retries"], after["memory/ooms"]) == (1, 1)
    assert after["memory/peak_allocated_bytes"] == 12 * MIB
    assert reset["memory/peak_allocated_bytes"] == 8 * MIB


@pytest.mark.cuda
def test_what_is_no_gpu_is_refused(told):
    assert len(told["refused"]) == 4
    assert told["refused"][0] == "device must be a GPU, as 'cuda:0', not 'cpu'"
    assert told["refused"][1] == "there is no cuda:9 here"


@pytest.mark.cuda
def test_a_monitor_reads_at_every_third_call_and_serves_the_last(told):
    # The first call, before CUDA was used, was one of them.
    assert told["every"] == [False, False, True, False]
    assert told["type"] == "text/plain; version=0.0.4; charset=utf-8"
    page = told["page"].splitlines()
    assert f'memlab_memory_allocated_bytes{{rank="0",device="0"}} {8 * MIB}' in page
    assert 'memlab_memory_ooms_total{rank="0",device="0"} 1' in page
    assert 'memlab_step{rank="0",device="0"} 102' in page


@pytest.mark.cuda
def test_what_fails_is_said_once_and_the_figures_go_on(told):
    assert told["broken_device"] == [{}, {}]
    assert told["broken_sink"] == [True, True]
    assert told["stderr"].count("no longer written to TensorBoard: the disk is") == 1
    assert told["stderr"].count("no longer monitored: there is no cuda:9 here") == 1


@pytest.mark.cuda
def test_nobody_asks_the_driver_while_the_context_is_away(told):
    assert told["away"] == [{}, {}] or "driver" in told["away"]


def test_the_driver_is_asked_in_a_thousandth_of_the_time(monkeypatch):
    now, asked = [100.0], []

    def ledger(source, index):
        asked.append((now[0], source, index))
        now[0] += 0.002
        return {"lines": {"unknown_bytes": len(asked)}}

    monkeypatch.setattr(_metrics.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_metrics, "_accounts", {})
    monkeypatch.setattr(_metrics, "_has_bridge", lambda: True)
    monkeypatch.setattr(sources, "ensure", lambda source: None)
    monkeypatch.setattr(_core, "ledger", ledger)
    answers = []
    for second in (100.0, 101.0, 102.0, 102.125, 103.0, 104.25):
        now[0] = max(now[0], second)
        answers.append(_metrics._unexplained(1))
    # Two milliseconds for each two seconds.
    assert answers == [1, 1, 1, 2, 2, 3]
    assert [when for when, _, _ in asked] == [100.0, 102.125, 104.25]
    now[0] = 104.3
    assert _metrics._unexplained(0) == 4 and asked[-1][1:] == ("cuda", 0)


def test_what_the_driver_does_not_tell_is_left_out_and_asked_for_seldom(monkeypatch):
    asked = []

    def ledger(source, index):
        asked.append(index)
        raise memlab.Error("there is no management library")

    monkeypatch.setattr(_metrics, "_accounts", {})
    monkeypatch.setattr(_metrics, "_has_bridge", lambda: True)
    monkeypatch.setattr(sources, "ensure", lambda source: None)
    monkeypatch.setattr(_core, "ledger", ledger)
    assert [_metrics._unexplained(0) for _ in range(3)] == [None] * 3
    assert asked == [0]


def test_no_bridge_is_built_for_a_figure(monkeypatch, tmp_path):
    def fail(*arguments):
        raise AssertionError

    monkeypatch.setattr(_metrics, "_accounts", {})
    monkeypatch.setattr(_core, "has_source", lambda name: False)
    monkeypatch.setattr(bridge, "bridge_key", lambda: "none")
    monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "ensure", fail)
    assert _metrics._unexplained(0) is None


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"every": 0}, ValueError, "every must be at least 1, not 0"),
        ({"every": True}, ValueError, "every must be an integer of at least 1"),
        ({"every": 1.5}, ValueError, "every must be an integer of at least 1"),
        ({"device": "cpu"}, ValueError, "device must be a GPU"),
        ({"prometheus": 65536}, ValueError, "prometheus must have a port"),
        ({"prometheus": "9400"}, ValueError, "'HOST:PORT'"),
        ({"prometheus": "host:http"}, ValueError, "'HOST:PORT'"),
        ({"prometheus": True}, TypeError, "prometheus must be a port"),
        ({"prometheus": 1.5}, TypeError, "prometheus must be a port"),
        ({"tensorboard": 3}, TypeError, "tensorboard must be a folder or a SummaryWriter"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        memlab.MemoryMonitor(**options)


# ---- Prometheus ----


def test_the_text_format():
    metrics = {
        "memory/allocated_bytes": 1 << 60,
        "memory/fragmentation": 0.25,
        "memory/ooms": 2,
        "loss of\\a\n-step": math.nan,
        "most": math.inf,
        "least": -math.inf,
    }
    text = prometheus.exposition(metrics, {"rank": "0", "host": 'a"b\\c\nd'}).decode()
    labels = r'{rank="0",host="a\"b\\c\nd"}'
    assert text == (
        "# HELP memlab_memory_allocated_bytes Bytes of tensors in torch's allocator.\n"
        "# TYPE memlab_memory_allocated_bytes gauge\n"
        f"memlab_memory_allocated_bytes{labels} 1152921504606846976\n"
        "# HELP memlab_memory_fragmentation_ratio inactive_split_bytes / reserved_bytes.\n"
        "# TYPE memlab_memory_fragmentation_ratio gauge\n"
        f"memlab_memory_fragmentation_ratio{labels} 0.25\n"
        "# HELP memlab_memory_ooms_total How often torch was out of memory.\n"
        "# TYPE memlab_memory_ooms_total counter\n"
        f"memlab_memory_ooms_total{labels} 2\n"
        "# HELP memlab_loss_of_a__step loss of\\\\a\\n-step\n"
        "# TYPE memlab_loss_of_a__step gauge\n"
        f"memlab_loss_of_a__step{labels} NaN\n"
        "# HELP memlab_most most\n"
        "# TYPE memlab_most gauge\n"
        f"memlab_most{labels} +Inf\n"
        "# HELP memlab_least least\n"
        "# TYPE memlab_least gauge\n"
        f"memlab_least{labels} -Inf\n"
    )


@pytest.mark.cuda
def test_all_figures_have_a_help_text(told):
    assert set(told["metrics"]) <= set(prometheus._KNOWN)


@pytest.mark.parametrize(
    ("where", "address"),
    [
        (9400, ("127.0.0.1", 9400)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("node-1.local:1", ("node-1.local", 1)),
    ],
)
def test_addresses(where, address):
    assert prometheus.parse_address(where) == address


def get(address, path="/metrics"):
    host, port = address
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=20) as page:
        return page.read()


def test_an_endpoint_serves_what_was_published_last():
    endpoint = prometheus.Endpoint("127.0.0.1", 0)
    # One who has connected and says nothing keeps nobody else.
    with socket.create_connection(endpoint.address):
        assert get(endpoint.address) == b""
        for step in (1, 2):
            endpoint.publish({"step": step}, {"rank": "3"})
            expected = prometheus.exposition({"step": step}, {"rank": "3"})
            for path in ("/metrics", "/metrics?a=b"):
                assert get(endpoint.address, path) == expected
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(endpoint.address, "/")
        connection = http.client.HTTPConnection(*endpoint.address, timeout=20)
        connection.request("POST", "/metrics", b"x")
        assert connection.getresponse().status == 501
        connection.close()
    endpoint.close()
    with pytest.raises(OSError):
        get(endpoint.address)


def test_an_endpoint_at_an_address_of_ipv6():
    try:
        endpoint = prometheus.Endpoint(*prometheus.parse_address("[::1]:0"))
    except OSError as error:
        pytest.skip(f"this machine has no ::1: {error}")
    endpoint.publish({"step": 7}, {})
    assert b"\nmemlab_step{} 7\n" in get((f"[{endpoint.address[0]}]", endpoint.address[1]))
    endpoint.close()


def test_an_endpoint_without_descriptors_rests(monkeypatch):
    """A reader that cannot be accepted stays in the queue."""
    refusals, rests = iter(range(3)), []

    class Socket:
        def __init__(self, really):
            self.really = really

        def __getattr__(self, name):
            return getattr(self.really, name)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.really.close()

        def accept(self):
            if next(refusals, None) is not None:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.really.accept()

    class Server(connections.Server):
        def __init__(self, *args):
            super().__init__(*args)
            self.closed.wait = rests.append
            self.socket = Socket(self.socket)

    monkeypatch.setattr(connections, "Server", Server)
    endpoint = prometheus.Endpoint("127.0.0.1", 0)
    endpoint.publish({"step": 7}, {})
    assert b"\nmemlab_step{} 7\n" in get(endpoint.address)
    assert rests[:3] == [connections._PAUSE_SECONDS] * 3
    endpoint.close()


def test_no_client_takes_a_thread_or_a_place_of_an_endpoint():
    """Slow ones, of which the oldest make room, and no thread of the training for any."""
    endpoint = prometheus.Endpoint("127.0.0.1", 0)
    endpoint.publish({"step": 7}, {})
    get(endpoint.address)
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        for number in range(3 * connections._MOST_STRANGERS):
            slow = stack.enter_context(socket.create_connection(endpoint.address))
            slow.settimeout(60)
            # Half a head, all of one whose answer is not read, or nothing.
            slow.send((b"GET /metr", b"GET /metrics HTTP/1.0\r\n\r\n", b"\n")[number % 3])
            if number == 0:
                first = slow
        assert b"\nmemlab_step{} 7\n" in get(endpoint.address)
        assert threading.active_count() <= threads
        assert len(endpoint._server._connections) <= connections._MOST_STRANGERS + 1
        with contextlib.suppress(ConnectionError):
            assert first.recv(1) == b""
    endpoint.close()


@pytest.fixture
def said(monkeypatch):
    said = []
    monkeypatch.setattr(_metrics, "tell", said.append)
    monkeypatch.setattr(_sinks, "tell", said.append)
    return said


def ranked(monkeypatch, rank, local_rank, world_size):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))


def test_each_rank_of_a_machine_has_a_port_of_its_own(monkeypatch, said):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ranked(monkeypatch, 5, 1, 8)
        sinks = _sinks.Sinks(prometheus=port - 1, device=2)
        sinks.write({"memory/ooms": 1}, 3)
        sinks.write({"memory/ooms": 1}, 4)
        assert sinks.address is None
        (text,) = said
        assert f"no longer written to Prometheus: 127.0.0.1:{port} cannot be opened" in text
        assert text.endswith("give prometheus= another port")
    sinks = _sinks.Sinks(prometheus=port - 1, device=2)
    sinks.write({"memory/ooms": 1}, 3)
    assert sinks.address == ("127.0.0.1", port)
    assert b'\nmemlab_memory_ooms_total{rank="5",device="2"} 1\n' in get(sinks.address)
    sinks.close()
    assert len(said) == 1


def test_a_forked_child_leaves_the_sinks_to_its_parent(said, tmp_path, torch):
    """TensorBoard's thread is not there, and would be waited for; the socket is shared."""
    pytest.importorskip("tensorboard")
    sinks = _sinks.Sinks(tmp_path, 0, device=0)
    sinks.write({"memory/ooms": 1}, 1)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own, of its timeout
        signal.alarm(60)
        for step in range(100):
            sinks.write({"memory/ooms": 2}, step)
        sinks.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert b"\nmemlab_memory_ooms_total{rank=\"0\",device=\"0\"} 1\n" in get(sinks.address)
    sinks.close()
    assert not said


# ---- TensorBoard ----


class Writer:
    def __init__(self):
        self.scalars = []
        self.flushed = 0

    def add_scalar(self, key, value, step):
        self.scalars.append((key, value, step))

    def flush(self):
        self.flushed += 1


def test_a_writer_of_the_program_is_written_to_and_stays_open(said):
    writer = Writer()
    sinks = _sinks.Sinks(tensorboard=writer)
    sinks.write({"memory/ooms": 1, "memory/fragmentation": 0.5}, 7)
    sinks.write({}, 8)
    sinks.close()
    assert writer.scalars == [("memory/ooms", 1, 7), ("memory/fragmentation", 0.5, 7)]
    assert writer.flushed == 1 and not said


def test_tensorboard_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(memlab.Error, match="pip install tensorboard"):
        memlab.MemoryMonitor(tensorboard="runs")


def test_a_folder_of_tensorboard(monkeypatch, said, tmp_path, torch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for rank in (0, 1):
        ranked(monkeypatch, rank, rank, 2)
        sinks = _sinks.Sinks(tensorboard=tmp_path)
        for step in (10, 20):
            sinks.write({"memory/reserved_bytes": rank + step}, step)
        sinks.close()
        (path,) = (tmp_path / f"rank{rank}").iterdir()
        scalars = [
            (value.tag, event.step, value.tensor.float_val[0])
            for event in EventFileLoader(str(path)).Load()
            for value in event.summary.value
        ]
        tag = "memory/reserved_bytes"
        assert scalars == [(tag, 10, rank + 10), (tag, 20, rank + 20)]
    assert not said


# ---- The documentation ----

TRAINERS = Path(__file__).resolve().parents[2] / "docs" / "TRAINERS.md"


@pytest.mark.cuda
def test_the_examples_of_uploads_and_metrics_run(phantom_run, tmp_path):
    pytest.importorskip("tensorboard")
    text = TRAINERS.read_text()
    text = text[text.index("## Uploads") : text.index("## Several ranks")]
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    # A port that no other test can have.
    done = phantom_run(code.replace("prometheus=9400", "prometheus=0"))
    assert int(done.stdout) > 0 and "Warning" not in done.stderr
    assert len(list((tmp_path / "runs" / "1").iterdir())) == 1
    for key in re.findall("memory/[a-z_]+[a-z]", text):
        assert key in prometheus._KNOWN or key == "memory/peak", key
