"""The figures of a MemoryMonitor in OpenTelemetry, and in a fleet's folder."""

import pytest

import memlab
from memlab._errors import Error
from memlab._monitor import sinks as _sinks

FIGURES = {
    "memory/allocated_bytes": 100,
    "memory/peak_allocated_bytes": 300,
    "memory/peak_reserved_bytes": 400,
    "memory/fragmentation": 0.25,
    "memory/ooms": 1,
}


@pytest.fixture
def ranked(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "8")


@pytest.fixture
def gauges():
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])

    def read():
        data = reader.get_metrics_data()
        scopes = [s for r in data.resource_metrics for s in r.scope_metrics] if data else []
        return {
            metric.name: (metric.unit, [(p.value, dict(p.attributes)) for p in points])
            for scope in scopes
            for metric in scope.metrics
            if (points := list(metric.data.data_points))
        }

    yield provider.get_meter("test"), read
    provider.shutdown()


def test_opentelemetry_reads_the_last_figures(ranked, gauges):
    meter, read = gauges
    sinks = _sinks.Sinks(opentelemetry=meter, device=2)
    sinks.write({**FIGURES, "memory/allocated_bytes": 7}, 0)
    sinks.write(FIGURES, 1)
    found = read()
    labels = {"rank": 3, "device": 2}
    assert found["memlab.memory.allocated"] == ("By", [(100, labels)])
    assert found["memlab.memory.fragmentation"] == ("1", [(0.25, labels)])
    assert len(found) == len(FIGURES)
    # A figure that is missing this time is not repeated.
    sinks.write({"memory/ooms": 2}, 2)
    assert read() == {"memlab.memory.ooms": ("1", [(2, labels)])}
    sinks.close()
    assert read() == {}


def test_what_is_no_meter_is_refused():
    pytest.importorskip("opentelemetry.metrics", reason="needs opentelemetry-api")
    with pytest.raises(TypeError, match="True or a Meter, not 'x'"):
        memlab.MemoryMonitor(opentelemetry="x")


def test_without_opentelemetry_the_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(Error, match="pip install opentelemetry-sdk"):
        memlab.MemoryMonitor(opentelemetry=True)


def test_a_row_a_step_in_a_fleets_folder(ranked, tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    torch = pytest.importorskip("torch")

    class Properties:
        total_memory = 1000

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    monkeypatch.setattr(_sinks._Fleet, "_ROWS", 2)
    sinks = _sinks.Sinks(fleet=tmp_path, run="a", labels={"team": "x"}, device=2)
    for step in range(3):
        sinks.write({**FIGURES, "memory/ooms": step}, step)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    sinks.close()
    rows = duckdb.sql(
        "SELECT run, rank, world_size, device, gpu_bytes, step, category, bytes, "
        "allocated_bytes, reserved_bytes, ooms, source, labels['team'] "
        f"FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = true) ORDER BY step"
    ).fetchall()
    assert rows == [
        ("a", 3, 8, 2, 1000, step, "unknown", 100, 300, 400, min(step, 1), "monitor", "x")
        for step in range(3)
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fleet": "s3://bucket/fleet"}, "memlab export` takes a URI"),
        ({"fleet": "f", "run": "a/b"}, "run must be of letters"),
        ({"run": "a"}, "give fleet too"),
    ],
)
def test_what_a_fleet_cannot_be(options, words):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    with pytest.raises(ValueError, match=words):
        memlab.MemoryMonitor(**options)
