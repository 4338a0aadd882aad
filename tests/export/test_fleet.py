"""A fleet's folder: rows against the table of steps, and the questions of docs/FLEET.md."""

import pickle
import re
from pathlib import Path

import pytest
from exports import real, small

import memlab
from memlab import _core
from memlab._errors import Error
from memlab._export import fleet

duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
pa = pytest.importorskip("pyarrow", reason="needs pyarrow")

PAGE = Path(__file__).parents[2] / "docs" / "FLEET.md"
ALL = "read_parquet('{}/*/*.parquet', hive_partitioning = true)"


def _sql(query):
    return duckdb.sql(query).fetchall()


def test_a_run_has_the_rows_of_its_steps(tmp_path):
    recording = small()
    [path] = fleet.export(recording, str(tmp_path), "a", {"team": "vision"})
    assert path == f"{tmp_path}/run=a/rank0.parquet"
    rows = _sql(
        "SELECT run, rank, world_size, device, step, sum(bytes), max(allocated_bytes), "
        "max(reserved_bytes), max(ooms), any_value(source), any_value(labels) "
        f"FROM {ALL.format(tmp_path)} GROUP BY ALL ORDER BY device"
    )
    # 512 and 1,024 bytes on the first device; 512, and a request that failed, on the other.
    assert [row[:10] for row in rows] == [
        ("a", 0, 1, 0, 0, 1536, 1536, 2 << 20, 0, "recording"),
        ("a", 0, 1, 1, 0, 512, 512, 2 << 20, 1, "recording"),
    ]
    assert rows[0][10] == {"team": "vision"}
    assert pa.parquet.read_schema(path).names == [field.name for field in fleet.schema(pa)]


def test_categories_sum_to_the_peak_of_each_step(tmp_path):
    recording = real("golden/ranks.pickle.gz")
    files = fleet.export(recording, str(tmp_path), "ranks")
    assert len(files) == len(recording.ranks()) > 1
    rows = _sql(
        "SELECT rank, device, step, sum(bytes), max(allocated_bytes) "
        f"FROM {ALL.format(tmp_path)} GROUP BY ALL"
    )
    assert all(total == peak for *_, total, peak in rows)
    for rank in recording.ranks():
        for device in rank["devices"]:
            peak = recording.peak(device["device"])["peak"]["allocated_bytes"]
            assert peak == max(
                row[4] for row in rows if row[:2] == (rank["rank"], device["number"])
            )


def test_an_export_again_replaces_its_own_rows_only(tmp_path):
    for run in ("a", "b", "a"):
        fleet.export(small(), str(tmp_path), run)
    assert _sql(f"SELECT run, count(*) FROM {ALL.format(tmp_path)} GROUP BY ALL ORDER BY 1") == [
        ("a", 3),
        ("b", 3),
    ]


def test_a_run_without_a_name_has_that_of_its_recording_and_when_it_began(tmp_path):
    small().write_pickle(str(tmp_path / "job 7.pickle"), True)
    [path] = memlab.export(str(tmp_path / "job 7.pickle"), str(tmp_path / "fleet"))
    # The events of the recording are of the second 1 of unix time.
    assert Path(path).parent.name == "run=job_7-19700101T000001"


@pytest.mark.parametrize("run", ["a/b", "..", "", " a", "a\nb"])
def test_a_name_that_is_no_folders_is_refused(tmp_path, run):
    with pytest.raises(ValueError, match="run must be of letters"):
        fleet.export(small(), str(tmp_path), run)
    assert list(tmp_path.iterdir()) == []


def test_labels_and_empty_recordings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="'no=good'"):
        fleet.export(small(), str(tmp_path), "a", {"no=good": "1"})
    nothing = pickle.dumps({"segments": [], "device_traces": []}, 2)
    empty = _core.Recording.from_bytes(nothing)
    with pytest.raises(Error, match="nothing to export"):
        fleet.export(empty, str(tmp_path), "a")


# ---- The page ----


def _row(run, rank, step, category, size, **more):
    row = {
        "rank": rank,
        "world_size": 4,
        "host": "h",
        "device": 0,
        "gpu_bytes": 1000,
        "step": step,
        "time": more.pop("time"),
        "category": category,
        "bytes": size,
        "allocated_bytes": more.pop("peak"),
        "reserved_bytes": more.pop("reserved"),
        "ooms": more.pop("ooms", 0),
        "source": "recording",
        "labels": list(more.items()),
    }
    return run, row


# Two commits of a job of four ranks; the second needs 200 bytes more of activations, and
# its rank 3 another 300, near its limit; and one of another team, which ran out.
ROWS = [
    *(
        _row(
            f"job-{commit}",
            rank,
            0,
            category,
            size + (300 if rank == 3 and more and category == "activation" else 0),
            peak=400 + more + (300 if rank == 3 and more else 0),
            reserved=500 + more + (300 if rank == 3 and more else 0),
            time=number * 10**6,
            commit=commit,
            team="vision",
        )
        for number, (commit, more) in enumerate((("aa", 0), ("bb", 200)))
        for rank in range(4)
        for category, size in (("parameter", 300), ("activation", 100 + more))
    ),
    _row("talk", 0, 0, "unknown", 10, peak=10, reserved=20, ooms=1, time=9, team="speech"),
]


def test_the_five_questions_of_the_page(tmp_path, monkeypatch):
    schema = fleet.schema(pa)
    for run in {run for run, _ in ROWS}:
        rows = [row for name, row in ROWS if name == run]
        table = pa.Table.from_pylist(rows, schema)
        fleet.write(pa, table, str(tmp_path / "fleet"), run, "rank0.parquet")
    monkeypatch.chdir(tmp_path)
    view, *queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    database = duckdb.connect()
    database.execute(view)
    commits, categories, teams, limits, ranks = (
        database.execute(query).fetchall() for query in queries
    )
    assert commits == [("aa", 400, None), ("bb", 900, 500)]
    assert categories == [
        ("activation", "aa", 100),
        ("activation", "bb", 600),
        ("parameter", "aa", 300),
        ("parameter", "bb", 300),
    ]
    assert teams[0] == ("speech", 1, 980, 0.98)
    # 4 x 500, 3 x 300 and 0 of eight GPUs of 1,000.
    assert teams[1] == ("vision", 8, 2900, 2900 / 8000)
    assert limits == [("job-bb", 3, 1.0, False), ("talk", 0, 0.02, True)]
    assert ranks == [("job-bb", 3, 900, 300.0)]
