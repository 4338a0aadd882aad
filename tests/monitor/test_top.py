"""memlab top: what a running job has allocated, read from its file alone."""

import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from job import Job

from memlab import _core
from memlab._cli import main
from memlab._errors import Error, SnapshotError
from memlab._monitor import top

MIB = 1 << 20
OTHER = Path(__file__).parents[1] / "data" / "gpt2_oom.pickle.gz"
BASE = 1 << 40

@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.close()


def end(recording, device=0):
    return recording.peak(device, recording.counts(device)["events"] - 1)


def about(file):
    """FILE without its length: it grows ahead of what is written, at any moment."""
    return {key: value for key, value in file.items() if key != "bytes"}


def look(followed):
    while followed.read():
        pass
    followed.look()
    return followed.answers[0] if followed.answers else None


# ---- Reading on ----


def test_each_look_equals_the_whole_file_read_then(job):
    job("alloc a 3")
    live = _core.Follower(job.file)
    for commands in (["alloc b 5", "step"], ["free a"], ["alloc c 1", "step", "free b"], []):
        job(*commands)
        live.poll()
        followed, whole = live.recording(), _core.Recording.from_file(job.file)
        assert followed.to_dict() == whole.to_dict()
        assert about(followed.file) == about(whole.file)
        assert end(followed) == end(whole)
        assert followed.notes() == whole.notes()
    assert end(followed)["peak"]["allocated_bytes"] == 1 * MIB
    assert end(followed)["whole_peak"]["allocated_bytes"] == 8 * MIB


def test_a_look_reads_only_what_came_since(job):
    job(*["alloc a 1", "free a"] * 200)
    live = _core.Follower(job.file)
    first = live.poll()
    assert first["events"] == 600
    assert not first["more"]
    again = live.poll()
    assert again == first
    job("alloc b 1")
    assert live.poll()["events"] == 601


def sums(answer, by):
    return {row.name: row.bytes for row in top.rows(answer, by)}


def test_old_events_make_room_and_what_they_said_stays(job):
    live = _core.Follower(job.file, kept=64)
    job("alloc old 7", "step")
    for i in range(40):
        job(f"alloc a{i} 1", f"alloc b{i} 2", f"free b{i}", "step")
        if i % 7 == 0:
            live.poll()
            live.recording()
    news = live.poll()
    assert news["events"] == 1 + 40 * 4
    assert news["gone_events"] > news["events"] - 64
    kept, whole = end(live.recording()), end(_core.Recording.from_file(job.file))
    for key in ("whole_peak", "by_line", "by_stack", "by_module", "by_category", "by_phase"):
        assert kept[key] == whole[key], key
    assert kept["peak"]["allocated_bytes"] == whole["peak"]["allocated_bytes"] == 47 * MIB
    history, all_of_it = live.history(0), _core.Follower(job.file)
    all_of_it.poll()
    all_of_it.recording()
    assert history == all_of_it.history(0)
    assert max(history["allocated_bytes"]) == 49 * MIB
    assert len(history["allocated_bytes"]) > 100


def test_what_made_room_is_told_of_a_merged_recording_too(job):
    live = _core.Follower(job.file, kept=8)
    job("many 3", "step", *["alloc a 2", "free a"] * 10)
    assert live.poll()["gone_events"] > 0
    alone = live.recording()
    # Other strings first, so that all numbers of names change.
    other = _core.Recording.from_bytes(gzip.decompress(OTHER.read_bytes()))
    merged = _core.merge([(other, "other", 0), (alone, "job", 1)])
    del other
    device = merged.device_count - 1
    for by in ("by_line", "by_category", "by_module", "by_stack"):
        assert end(merged, device)[by] == end(alone)[by], by
    del merged
    assert [group["bytes"] for group in end(alone)["by_line"]] == [MIB]


def test_a_look_in_parts_ends_where_one_at_once_does(job):
    job(*[f"alloc a{i} 1" for i in range(50)], "many 3000")
    followed = top.Followed("job", job.file)
    answer = look(followed)
    whole = _core.Recording.from_file(job.file)
    assert {key: answer[key] for key in whole.peak(0)} == end(whole)
    # A line of the program each, and the one that all others are of.
    assert sum(row.bytes for row in top.rows(answer, "line")) == 51 * MIB
    parts = _core.Follower(job.file)
    while parts.poll(10)["more"]:
        pass
    assert parts.recording().to_dict() == whole.to_dict()


# ---- What becomes of the job and its file ----


def test_a_job_that_is_killed_leaves_its_last_state(job):
    job("alloc a 3")
    followed = top.Followed("job", job.file)
    look(followed)
    assert (followed.state, followed.over) == ("recording", False)
    job("alloc b 2")
    job.kill()
    answer = look(followed)
    assert (followed.state, followed.over) == ("cut off", True)
    assert answer["peak"]["allocated_bytes"] == 5 * MIB
    assert "killed or lost" in top.text(followed, ("line",), 5, True)


def test_a_job_that_ends_is_told(job):
    job("alloc a 3", "end")
    followed = top.Followed("job", job.file)
    look(followed)
    assert (followed.state, followed.over) == ("ended", True)


def test_a_file_that_was_removed_is_told_and_its_state_stays(job):
    job("alloc a 3")
    followed = top.Followed("job", job.file)
    os.unlink(job.file)
    assert look(followed)["peak"]["allocated_bytes"] == 3 * MIB
    assert followed.state == "removed"


def test_a_file_that_was_cut_leaves_the_last_state(job):
    job("alloc a 3")
    followed = top.Followed("job", job.file)
    look(followed)
    job.kill()
    os.truncate(job.file, 100)
    assert look(followed)["peak"]["allocated_bytes"] == 3 * MIB
    assert (followed.state, followed.over) == ("cut", True)
    assert "was cut" in followed.title()


def test_no_figure_of_a_file_that_could_not_grow_is_told_as_whole(job, tmp_path):
    path = tmp_path / "small.mlab"
    script = _core.Script()
    script.reset()
    script.emit("segment_alloc", BASE, 1 << 30)
    snapshot = _core.MemorySnapshot()
    snapshot._begin(
        "script", 8, "all", False, True, -1, file=path, max_file_bytes=1114112
    )
    for i in range(60_000):
        script.emit("alloc", BASE + i * i * 513, 512, sequence=i * i * 7777777)
    followed = top.Followed("small", str(path))
    look(followed)
    snapshot._end()
    assert any("Not everything was stored" in note for note in followed.notes())


# ---- Whose file ----


def test_the_file_of_a_process_and_of_its_parent_is_found(job):
    pid = job.process.pid
    assert top.find(str(pid)) == [(job.file, job.file)]
    assert (job.file, job.file) in top.find(str(os.getpid()))


def test_a_removed_file_is_found_where_its_process_has_it(job):
    job("alloc a 3")
    os.unlink(job.file)
    ((name, path),) = top.find(str(job.process.pid))
    assert name == f"{job.file} (deleted)"
    assert look(top.Followed(name, path))["peak"]["allocated_bytes"] == 3 * MIB


def test_who_only_reads_a_file_is_no_job(job):
    with open(job.file, "rb"):
        assert list(top.written_by(os.getpid())) == []


def test_what_cannot_be_looked_at_is_refused_with_the_remedy(job, tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as idle:
        with pytest.raises(Error, match="write no .mlab file: start it with"):
            top.find(str(idle.pid))
    with pytest.raises(Error, match="has ended|there is no process"):
        top.find(str(idle.pid))
    with pytest.raises(Error, match="there is no process 4194305; for a file"):
        top.find("4194305")
    with pytest.raises(Error, match="no file in it ends in .mlab"):
        (tmp_path / "empty").mkdir()
        top.find(str(tmp_path / "empty"))
    other = tmp_path / "other.mlab"
    other.write_bytes(b"no recording " * 1000)
    with pytest.raises(SnapshotError, match="^the other: no .mlab file"):
        top.Followed("the other", str(other))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SnapshotError, match="^pipe: the file ends within its header"):
        top.Followed("pipe", str(tmp_path / "pipe"))
    with pytest.raises(OSError, match="not there"):
        top.Followed("none", str(tmp_path / "not there"))


# ---- Text ----


def run(capsys, *arguments):
    status = main.main(["top", *arguments])
    return status, *capsys.readouterr()


def test_once_says_the_figures_by_line_and_module(job, capsys):
    job("alloc a 3", "alloc b 2", "free b", "step", "phase 'warm\\x1b[31m\\u202eup'")
    job("alloc c 1")
    status, out, err = run(capsys, job.file, "--once", "--by", "line", "--by", "module")
    assert (status, err) == (0, "")
    assert f"{job.file}: process {job.process.pid} on " in out
    assert "allocated  4.00 MiB  5.00 MiB  (4194304 bytes)" in out
    assert "step 1" in out
    assert "phase warm\\x1b[31m\\u202eup" in out
    assert "\x1b" not in out
    assert "4.00 MiB  100.0 %" in out
    assert "By module" in out


def test_of_several_files_a_table_and_the_highest(job, capsys, tmp_path):
    job("alloc a 3", "alloc b 2", "free b", "step")
    folder = tmp_path / "ranks"
    folder.mkdir()
    shutil.copy(job.file, folder / "low.mlab")
    job("alloc c 4")
    shutil.copy(job.file, folder / "rank1.mlab")
    status, out, err = run(capsys, str(folder), "--once")
    assert (status, err) == (0, "")
    rows = [line.split() for line in out.splitlines()[:3]]
    assert rows[0] == ["rank", "device", "now", "peak", "reserved", "step"]
    assert [row[0] for row in rows[1:]] == ["low.mlab", "rank1.mlab"]
    assert rows[1][2:6] == ["3.00", "MiB", "5.00", "MiB"]
    assert rows[2][2:6] == ["7.00", "MiB", "7.00", "MiB"]
    # Of the others the table has all.
    assert out.count("allocated") == 1
    assert "(7340032 bytes)" in out


def test_json_is_what_a_report_of_the_end_says(job, capsys):
    job("alloc a 3", "step")
    status, out, _ = run(capsys, job.file, "--json")
    (file,) = json.loads(out)["files"]
    (device,) = file["devices"]
    whole = _core.Recording.from_file(job.file)
    assert status == 0
    assert file["state"] == "recording"
    assert {key: device[key] for key in whole.peak(0)} == end(whole)
    assert about(file["recording"]) == about(whole.file)


def test_without_a_terminal_or_the_extra_the_error_names_the_way(job, capsys, monkeypatch):
    job("alloc a 3")
    status, _, err = run(capsys, job.file)
    assert status == 1
    assert "memlab top --once" in err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.delitem(sys.modules, "memlab._monitor.top_screen", raising=False)
    status, _, err = run(capsys, job.file)
    assert status == 1
    assert "pip install 'memlab[tui]'" in err


# ---- The screen ----


def cells(app):
    table = app.query_one("#rows")
    return [[str(c) for c in table.get_row_at(i)] for i in range(table.row_count)]


def on_screen(job, script, size=(120, 30)):
    """Runs SCRIPT(app, pilot) on the screen of JOB, of SIZE columns and lines."""
    screen = pytest.importorskip("memlab._monitor.top_screen", exc_type=ImportError)

    async def run():
        app = screen.Screen([top.Followed("job", job.file)])
        async with app.run_test(size=size) as pilot:
            await app.look()
            await script(app, pilot)

    asyncio.run(run())


def test_the_screen_shows_looks_and_heeds_keys(job):
    async def script(app, pilot):
        assert [row[0].strip() for row in cells(app)] == ["3.00 MiB"]
        job("alloc b 2")
        await app.look()
        assert [row[:4] for row in cells(app)] == [
            ["5.00 MiB", "100.0 %", "5.00 MiB", "+2.00 MiB"]
        ]
        await pilot.press("space")
        job("free a")
        await app.look()
        assert cells(app)[0][0] == "5.00 MiB"
        await pilot.press("space", "c", "g")
        await app.look()
        assert cells(app)[0][0] == "2.00 MiB"
        assert app.query_one("#rows").ordered_columns[4].label.plain == "category"
        await pilot.press("z", "m")
        assert cells(app)[0][3] == ""
        await pilot.press("slash", *"nowhere", "enter")
        assert cells(app) == []
        await pilot.press("escape")
        assert len(cells(app)) == 1
        job.kill()
        await app.look()
        assert "killed or lost" in str(app.query_one("#title").render())
        await pilot.press("q")

    job("alloc a 3")
    on_screen(job, script)


def test_a_small_terminal_has_rows_too(job):
    async def script(app, pilot):
        rows = app.query_one("#rows")
        async def settles(fits):
            # What is laid out follows in some turns of the loop, more on a busy machine.
            for _ in range(1000):
                if fits():
                    return True
                await pilot.pause()
            return False

        # 1 of the title, 3 of figures, 1 of the state, 1 of keys; the heading.
        assert await settles(lambda: (rows.region.height, rows.region.bottom) == (4, 8))
        await pilot.resize_terminal(120, 30)
        assert await settles(lambda: rows.region.height > 15)

    job("alloc a 3")
    on_screen(job, script, (40, 10))


def test_hostile_names_are_text_on_the_screen(job):
    async def script(app, pilot):
        shown = str(app.query_one("#figures").render())
        assert "[red]\\x1b[31m" in shown
        assert "\x1b" not in shown

    job("phase '[red]\\x1b[31m'", "alloc a 3")
    on_screen(job, script)
