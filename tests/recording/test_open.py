"""memlab.open() and memlab.Recording: what a recording of each kind answers."""

import gzip
import pickle
import shutil
from pathlib import Path

import pytest
from exports import small
from rank_files import MIB, SECOND, snapshot, write

import memlab
from memlab import _core

DATA = Path(__file__).parents[1] / "data"
BASE = 1 << 40


@pytest.fixture
def unpacked(tmp_path):
    """The file NAME of tests/data, unpacked: .mlab files are not read packed."""

    def unpack(name):
        path = tmp_path / Path(name).name.removesuffix(".gz")
        path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """(the MemorySnapshot, its file): 3 MiB and 1 MiB in a segment of 16 MiB, of which the
    3 MiB are freed; a step ends after the first block and one at the end."""
    path = tmp_path_factory.mktemp("scripted") / "run.mlab"
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script", file=path) as recorded:
        script.emit("segment_alloc", BASE, 16 * MIB, time=SECOND)
        script.emit("alloc", BASE, 3 * MIB, time=SECOND + 1000)
        memlab.step()
        script.emit("alloc", BASE + 3 * MIB, MIB, time=SECOND + 2000)
        script.emit("free_requested", BASE, 3 * MIB, time=SECOND + 3000)
        script.emit("free_completed", BASE, 3 * MIB, time=SECOND + 4000)
    script.reset()
    return recorded, path


def test_a_file_of_memlab(scripted):
    recording = memlab.open(scripted[1])
    assert isinstance(recording, memlab.Recording)
    assert recording.path == str(scripted[1])
    assert recording.devices[0] == "script:0"
    assert recording.peak()["peak"]["allocated_bytes"] == 4 * MIB
    assert recording.at("end")["peak"]["allocated_bytes"] == MIB
    assert recording.at("event:1", 0)["peak"]["allocated_bytes"] == 3 * MIB
    assert scripted[0].at("2us")["peak"]["allocated_bytes"] == 4 * MIB
    assert recording.at("start")["peak"]["allocated_bytes"] == 0
    assert "4.00 MiB allocated (4194304 bytes)" in recording.summary()
    assert recording.oom() is None and recording.modules() == []
    verdict = recording.verdict()
    assert verdict == recording.verdict(0) and verdict["device"] == 0
    assert verdict["peak"]["allocated_bytes"] == 4 * MIB
    assert recording.events(0)["bytes"][:5].tolist() == [
        16 * MIB, 3 * MIB, MIB, 3 * MIB, 3 * MIB
    ]


def test_a_file_that_is_being_written(tmp_path):
    script = _core.Script()
    script.reset()
    with memlab.MemorySnapshot(source="script", file=tmp_path / "run.mlab") as recorded:
        script.emit("alloc", BASE, MIB)
        recording = memlab.open(tmp_path / "run.mlab")
        script.emit("alloc", BASE + MIB, MIB)
        assert repr(recorded) == "<memlab.MemorySnapshot: recording>"
    script.reset()
    # It does not change.
    assert recording.peak()["peak"]["allocated_bytes"] == MIB
    assert "Still being recorded" in recording.summary()
    assert recorded.peak()["peak"]["allocated_bytes"] == 2 * MIB


@pytest.mark.parametrize("form", [str, bytes, Path])
def test_a_pickle_packed_or_not(tmp_path, form):
    path = tmp_path / "run.pickle"
    small().write_pickle(path, True)
    packed = tmp_path / "run.pickle.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        name = bytes(file) if form is bytes else form(file)
        recording = memlab.open(name)
        assert recording.path == str(file)
        assert [recording.peak(i)["peak"]["allocated_bytes"] for i in (0, 1)] == [1536, 512]
        # The device with the most.
        assert recording.peak()["device"] == 0


def test_two_devices_of_which_the_second_ran_out_of_memory(tmp_path):
    small().write_pickle(tmp_path / "run.pickle", True)
    recording = memlab.open(tmp_path / "run.pickle")
    assert recording.devices == {0: "cuda:0", 1: "cuda:1"}
    assert recording.oom(0) is None
    assert repr(recording).endswith("; ran out of memory; 1 more device>")
    oom = recording.oom()
    assert (oom["device"], oom["request"]["bytes"]) == (1, 4 << 40)
    assert str(oom).startswith("CUDA out of memory on cuda:1 in ")
    assert "asked for 4.00 TiB (4398046511104 bytes)" in str(oom)
    with pytest.raises(IndexError, match="2"):
        recording.oom(2)


def test_a_real_out_of_memory():
    recording = memlab.open(DATA / "gpt2_oom.pickle.gz")
    oom = recording.oom()
    known = recording.data().oom(0)
    assert oom == known and oom["count"] == 1
    assert f"({known['request']['bytes']} bytes)" in str(oom)


def test_memory_of_device_1_alone(unpacked):
    """64 MiB from before, 1,000 bytes more; then the 64 MiB were freed."""
    recording = memlab.open(unpacked("mlab/device1.mlab.gz"))
    assert recording.devices == {0: "cuda:0", 1: "cuda:1"}
    answer = recording.peak()
    assert (answer["device"], answer["peak"]["allocated_bytes"]) == (1, 64 * MIB + 1024)
    assert recording.at("end", 1)["peak"]["allocated_bytes"] == 1024
    assert set(recording.events(1)["device"]) == {1}
    # Of the first device it has that its memory was looked at.
    assert list(recording.events(0)["action"]) == ["snapshot"]
    assert "cuda:1 peaks at 64.0 MiB allocated" in repr(recording)
    assert repr(recording).endswith("events>")
    with pytest.raises(memlab.Error, match="no memory of device 2"):
        recording.explain(device=2)


def test_two_devices_of_one_process(unpacked):
    """32 and 3 MiB on the first, 64 and 5 on the second, and there 1,000 bytes more."""
    recording = memlab.open(unpacked("mlab/two_devices.mlab.gz"))
    peaks = {i: recording.peak(i)["peak"]["allocated_bytes"] for i in recording.devices}
    assert peaks == {0: 35 * MIB, 1: 69 * MIB + 1024}
    assert recording.peak()["device"] == 1
    assert repr(recording).endswith("events; 1 more device>")
    assert [d["device"] for d in memlab.report(recording)["devices"]] == [0, 1]
    replayed = recording.replay(device=1)["devices"]
    assert [d["name"] for d in replayed] == ["cuda:1"]


def ranks(folder):
    return write(
        folder,
        rank0=snapshot(0, sizes=[MIB, MIB], host="a", boot_id="b"),
        rank1=snapshot(1, sizes=[MIB, MIB, 3 * MIB], host="a", boot_id="b"),
    )


def test_the_ranks_of_a_folder(tmp_path):
    paths = ranks(tmp_path)
    merged = memlab.merge(paths)
    assert merged.path is None
    for recording in (merged, memlab.merge(tmp_path), memlab.open(tmp_path)):
        assert recording.devices == {0: "rank 0 (cuda:0)", 1: "rank 1 (cuda:0)"}
        assert recording.peak()["peak"]["allocated_bytes"] == 5 * MIB
        answer = recording.ranks()
        assert answer["worst"] == 1
        assert answer["compared_to"]["difference_bytes"] == 3 * MIB
        assert str(answer).startswith("Ranks by peak: 2\n")
        between = recording.diff(ranks=(0, 1))["difference"]
        assert between["difference_bytes"] == 3 * MIB
        [only] = memlab.report(recording, rank=1)["devices"]
        assert only["peak"]["allocated_bytes"] == 5 * MIB
    merged.save(tmp_path / "all.pickle")
    assert memlab.open(tmp_path / "all.pickle").ranks()["worst"] == 1


def test_two_files_of_one_rank(tmp_path):
    paths = ranks(tmp_path)
    with pytest.raises(memlab.Error, match=r"rank 0 is in .*rank0\.pickle and in "):
        memlab.merge([paths[0], paths[0]])


def nothing(folder):
    path = folder / "nothing.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": []}))
    return memlab.open(path)


def test_a_recording_of_nothing(tmp_path):
    recording = nothing(tmp_path)
    assert recording.devices == {}
    assert recording.oom() is None
    assert len(recording.events()) == 0 and recording.events().columns == []
    assert recording.summary() == "No memory was allocated while recording.\n"
    assert repr(recording).endswith("nothing.pickle': no memory was allocated>")
    assert recording._repr_html_() == "<p>No memory was allocated while recording.</p>"
    assert str(memlab.report(recording)) == "No memory was allocated while recording."
    assert recording.ranks()["ranks"] == []
    for ask in (recording.explain, recording.replay, recording.tune, recording.peak,
                lambda: recording.diff(recording, at="end"), recording.modules):
        with pytest.raises(memlab.Error, match="No memory was allocated while recording"):
            ask()


def test_a_device_without_events(tmp_path):
    """Which torch's snapshots have for each GPU of the machine."""
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    recording = memlab.open(path)
    assert recording.devices == {}
    assert len(recording.events()) == 0 and "action" in recording.events().columns


def test_what_is_no_recording(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("not a recording")
    with pytest.raises(memlab.SnapshotError, match=r"notes\.txt: .*memlab reads \.mlab"):
        memlab.open(file)
    with pytest.raises(FileNotFoundError, match=r"absent\.mlab"):
        memlab.open(tmp_path / "absent.mlab")
    file.write_bytes(gzip.compress(b"\x89MLAB\r\n\x1a"))
    with pytest.raises(memlab.SnapshotError, match=r"notes\.txt: a \.mlab file packed by"):
        memlab.open(file)
    file.write_bytes(b"\x89MLAB\r\n\x1a but cut")
    with pytest.raises(memlab.SnapshotError, match=r"notes\.txt: "):
        memlab.open(file)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(memlab.Error, match="empty: no recording of a rank here"):
        memlab.open(empty)


class Hostile:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    file = tmp_path / "run.pickle"
    file.write_bytes(pickle.dumps({"segments": Hostile(), "device_traces": []}))
    with pytest.raises(memlab.SnapshotError, match=r"run\.pickle"):
        memlab.open(file)
    assert capsys.readouterr().out == ""


# ---- URIs ----


@pytest.fixture
def store():
    """An empty store of fsspec's, at memory://memlab-test."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    files = fsspec.filesystem("memory")
    files.makedirs("/memlab-test", exist_ok=True)
    yield files
    files.rm("/memlab-test", recursive=True)


def test_a_uri(scripted, store):
    store.put_file(str(scripted[1]), "/memlab-test/run.mlab")
    recording = memlab.open("memory://memlab-test/run.mlab")
    assert recording.path == "memory://memlab-test/run.mlab"
    assert recording.peak()["peak"]["allocated_bytes"] == 4 * MIB
    assert memlab.load("memory://memlab-test/run.mlab")["segments"] != []
    assert str(scripted[0].diff("memory://memlab-test/run.mlab")).startswith("The same memory")


def test_what_is_secret_in_a_uri_is_told_nowhere(scripted, store):
    key = "/user:secret@memlab-test/run.mlab"
    store.put_file(str(scripted[1]), key)
    recording = memlab.open(f"memory:/{key}")
    store.rm_file(key)
    assert recording.path == "memory://memlab-test/run.mlab"
    for told in (repr(recording), str(memlab.report(recording)), str(recording.diff(recording))):
        assert "memlab-test/run.mlab" in told and "secret" not in told


def test_a_uri_of_a_folder(tmp_path, store):
    for path in ranks(tmp_path):
        store.put_file(path, f"/memlab-test/run/{Path(path).name}")
    store.pipe_file("/memlab-test/run/report.txt", b"the first screen")
    for uri in ("memory://memlab-test/run", "memory://memlab-test/run/"):
        answer = memlab.open(uri).ranks()
        assert answer["worst"] == 1
        assert answer["ranks"][1]["file"] == "memory://memlab-test/run/rank0.pickle"


def test_a_uri_without_a_recording(store, monkeypatch, tmp_path):
    said = r"memory://memlab-test/absent\.mlab: FileNotFoundError.*check that the bucket"
    with pytest.raises(memlab.Error, match=said):
        memlab.open("memory://user:secret@memlab-test/absent.mlab")
    with pytest.raises(memlab.Error, match="fsspec knows no nothing://"):
        memlab.open("nothing://memlab-test/run.mlab")
    store.pipe_file("/memlab-test/notes.mlab", b"not a recording")
    with pytest.raises(memlab.SnapshotError, match="^memory://memlab-test/notes.mlab: "):
        memlab.open("memory://memlab-test/notes.mlab")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(memlab.Error, match=r'pip install "memlab\[remote\]"'):
        memlab.open("s3://bucket/run.mlab")


def test_a_file_here_with_a_name_like_a_uri(tmp_path, monkeypatch, scripted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:").mkdir()
    shutil.copy(scripted[1], tmp_path / "s3:" / "run.mlab")
    assert memlab.open("s3://run.mlab").peak()["peak"]["allocated_bytes"] == 4 * MIB
