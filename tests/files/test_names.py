"""Names of files: fields, ranks, folders, and names in a bucket."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from memlab._files import names as _names
from memlab._files.times import Progress

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")
TASK = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NODEID": "2",
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*VARIABLES, *TASK):
        monkeypatch.delenv(name, raising=False)


def test_ranks_of_the_environment(monkeypatch):
    assert _names.ranks() == {
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "local_world_size": 1,
        "node_rank": 0,
    }
    for number, name in enumerate(VARIABLES, 3):
        monkeypatch.setenv(name, str(number))
    assert list(_names.ranks().values()) == [3, 4, 5, 6, 7]
    for wrong in ("", "three", "-1", "²", "9" * 10):
        monkeypatch.setenv("RANK", wrong)
        assert _names.ranks()["rank"] == 0


def test_tasks_of_srun_are_ranks_where_no_other_launcher_is(monkeypatch):
    assert not _names.launched()
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    found = _names.ranks()
    assert _names.launched()
    assert [found[k] for k in ("rank", "local_rank", "world_size")] == [3, 1, 4]
    assert (found["local_world_size"], found["node_rank"]) == (1, 2)
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (_names.ranks()["rank"], _names.ranks()["world_size"]) == (7, 8)
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")  # srun of torchrun, or of one program
    assert not _names.launched()
    assert _names.ranks()["rank"] == 0


def test_ranks_of_torch_distributed_go_first(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    group = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 5,
        get_world_size=lambda: 8,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert (_names.ranks()["rank"], _names.ranks()["world_size"]) == (5, 8)
    group.is_initialized = lambda: False
    assert _names.ranks()["rank"] == 3

    def broken():
        raise RuntimeError("half set up")

    group.is_initialized = broken
    assert _names.ranks()["rank"] == 3


def test_all_fields(monkeypatch):
    """The values of Composer's own test of its names."""
    for name, value in zip(VARIABLES, (1, 2, 16, 8, 0), strict=True):
        monkeypatch.setenv(name, str(value))
    progress = Progress(
        epoch=0,
        batch=1,
        batch_in_epoch=1,
        sample=2,
        sample_in_epoch=2,
        token=3,
        token_in_epoch=3,
        total_wct=36000.0,
        epoch_wct=3000.0,
        batch_wct=5.0,
    )
    names = (
        "run_name rank local_rank world_size local_world_size node_rank epoch batch "
        "batch_in_epoch sample sample_in_epoch token token_in_epoch total_wct epoch_wct "
        "batch_wct"
    ).split()
    template = ",".join(f"{name}={{{name}}}" for name in names)
    assert _names.fill(template, progress, run_name="awesome") == (
        "run_name=awesome,rank=1,local_rank=2,world_size=16,local_world_size=8,"
        "node_rank=0,epoch=0,batch=1,batch_in_epoch=1,sample=2,sample_in_epoch=2,"
        "token=3,token_in_epoch=3,total_wct=36000.0,epoch_wct=3000.0,batch_wct=5.0"
    )
    assert _names.fill("{batch}/{rank}") == "{batch}/1"


@pytest.mark.parametrize(
    "template, name",
    [
        ("{other}{}", "{other}{}"),
        ("{other!r:>3}", "{other!r:>3}"),
        ("{rank.real}{rank[0]}", "{rank.real}{rank[0]}"),
        ("{batch:05d}-{rank:>{width}}", "00004-  0"),
        ("{{batch}}", "{batch}"),
        ("{total_wct:.1f}s", "1.5s"),
    ],
)
def test_other_fields_stay(template, name):
    progress = Progress(batch=4, total_wct=1.5)
    assert _names.fill(template, progress, width=3) == name


@pytest.mark.parametrize(
    "template, error",
    [
        ("a{", ValueError),
        ("a}", ValueError),
        ("{batch:q}", ValueError),
        ("{total_wct:d}", ValueError),
        ("", ValueError),
        ("a\0", ValueError),
        (None, TypeError),
        (3, TypeError),
    ],
)
def test_templates_that_are_none(template, error):
    with pytest.raises(error, match="^filename "):
        _names.check_template(template, "filename")
    taken = "{run_name:>9}/{batch:05d}.{total_wct:.0f}.{x:q}"
    assert _names.check_template(taken, "filename") == taken
    assert _names.check_template(pathlib.Path("{run_name}") / "a", "folder") == (
        "{run_name}/a"
    )


@pytest.mark.parametrize("run", ["../up", "a/../../b", "/etc", "..", "a\0b"])
def test_a_run_cannot_lead_out_of_its_folder(run):
    with pytest.raises(ValueError, match="run_name is .*without '..'"):
        _names.fill("{run_name}/traces", run_name=run)
    # Where it is not used it does no harm, and the template is the program's own.
    assert _names.fill("../traces", run_name=run) == "../traces"
    assert _names.fill("/tmp/{run_name}", run_name="a..b/c") == "/tmp/a..b/c"


def test_a_file_is_inside_its_folder():
    assert _names.inside("out", "a/b..c") == os.path.join("out", "a/b..c")
    for name in ("", "../b", "a/../b", "/b", "a/", ".."):
        with pytest.raises(ValueError, match="is not a file name in 'out'"):
            _names.inside("out", name)


def test_ranks_that_share_a_name_are_told_apart(monkeypatch):
    assert _names.apart("run/snapshot") == ""
    monkeypatch.setenv("RANK", "2")
    assert _names.apart("{run_name}", "snapshot{batch}") == "_rank2"
    assert _names.apart("{rank}", "snapshot") == ""
    assert _names.apart("{node_rank}", "{local_rank}") == ""
    assert _names.apart("{local_rank}") == "_rank2"


@pytest.mark.parametrize(
    "name, key",
    [
        ("backend://bucket/path", "path"),
        ("backend://bucket@namespace/path", "path"),
        ("backend://bucket/a/longer/path", "a/longer/path"),
        ("s3://b/{run_name}/rank{rank}", "{run_name}/rank{rank}"),
        ("s3://b/a?b#c", "a?b#c"),
        ("AZURE_BLOBS://container/path", "path"),
        ("dbfs:/Volumes/a", "Volumes/a"),
        ("backend://bucket/", ""),
        ("backend://bucket", ""),
        ("a/long/path", "a/long/path"),
        ("/a/long/path", "a/long/path"),
        ("//a", "a"),
        ("a:b/c", "a:b/c"),
    ],
)
def test_names_in_a_bucket(name, key):
    assert _names.remote_key(name) == key
    assert _names.is_uri(name) == (":/" in name)


def test_folders_that_are_not_empty(tmp_path):
    _names.require_empty(str(tmp_path / "missing"))
    (tmp_path / ".hidden").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("")
    (tmp_path / "empty" / "too").mkdir(parents=True)
    _names.require_empty(str(tmp_path))
    deep = tmp_path / "empty" / "too" / "a.txt"
    deep.write_text("")
    with pytest.raises(FileExistsError) as caught:
        _names.require_empty(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path} is not empty; {deep} exists.")
    assert "overwrite=True" in str(caught.value)


def test_files_of_ranks_that_are_ahead_do_not_count(tmp_path, monkeypatch):
    """Those from before the run do, on each rank."""
    ahead = tmp_path / "rank1.4.memory_snapshot.pickle"
    ahead.write_text("")
    monkeypatch.setenv("WORLD_SIZE", "2")
    _names.require_empty(str(tmp_path))
    os.utime(ahead, (0, 0))
    with pytest.raises(FileExistsError, match="rank1"):
        _names.require_empty(str(tmp_path))


def test_no_framework_is_needed():
    program = (
        "import sys, memlab._files.names, memlab._files.times, memlab._record.window\n"
        "assert not {'torch', 'composer', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_folder_that_cannot_be_made_is_named_with_its_argument(tmp_path):
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "below")
    with pytest.raises(NotADirectoryError) as caught:
        _names.make_folder(folder, "save_dir")
    assert f"{folder}, cannot be made: Not a directory; give another save_dir" in str(caught.value)
    _names.make_folder(str(tmp_path / "new" / "below"))
    assert (tmp_path / "new" / "below").is_dir()
