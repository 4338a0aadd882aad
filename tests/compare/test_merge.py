"""memlab merge: recordings of several ranks as one, which peaks highest, and why."""

import json
import os
import pickle
import random
import shutil
import statistics
from pathlib import Path

import pytest
from answer_shapes import check
from pseudo_terminal import in_a_terminal
from rank_files import MIB, SECOND, snapshot, write
from report_keys import undocumented

import memlab
from memlab import _answers, _core
from memlab._cli import main
from memlab._compare import merge
from memlab._errors import Error
from memlab._files import load
from memlab._files import names as _names

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "two_ranks.py"
def times(recording, device):
    return [event["time_us"] for event in recording.to_dict()["device_traces"][device]]


# ---- Real ranks ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory, device_environment):
    """The folder that tests/programs/two_ranks.py left, and what it printed."""
    from cuda_here import has_gpu
    from warm import run

    if has_gpu():
        import torch

        if torch.cuda.device_count() < 2:
            pytest.skip("two ranks need two GPUs, or none: the phantom has as many")
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**device_environment, "MEMLAB_PHANTOM_DEVICES": "2"}
    done = run(PROGRAM, folder, env=environment, cwd=folder, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.mark.cuda
def test_two_ranks_under_torch_distributed(trained, tmp_path, capsys):
    """The program checks the figures; here is what the command makes of them."""
    folder, printed = trained
    assert "two_ranks.py: all checks hold" in printed
    merged = tmp_path / "merged.pickle"
    assert main.main(["merge", str(folder), "-o", str(merged), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    check(answer, _answers.MergedRanks)
    assert undocumented(answer) == set()
    assert [row["rank"] for row in answer["ranks"]] == [1, 0]
    assert [row["state"] for row in answer["ranks"]] == ["ended", "ended"]
    # All that reads a recording reads this one.
    assert main.main(["report", str(merged), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check(report, _answers.Report)
    assert undocumented(report) == set()
    names = [device["name"] for device in report["devices"]]
    assert [name[:6] for name in names] == ["rank 0", "rank 1"]
    peaks = [device["peak"]["allocated_bytes"] for device in report["devices"]]
    assert peaks[::-1] == [row["peak_allocated_bytes"] for row in answer["ranks"]]
    assert main.main(["report", str(merged)]) == 0
    assert f"Peak on {names[1]}: " in capsys.readouterr().out
    assert main.main(["view", str(merged)]) == 0
    assert names[1] in merged.with_suffix(".html").read_text()
    loaded = memlab.load(merged)
    assert loaded == pickle.loads(merged.read_bytes())
    assert len(loaded["device_traces"]) == 2
    assert {s["device"] for s in loaded["segments"]} == {0, 1}
    # What ranks marked keeps its rank, for torch's viewer by the device.
    marks = {(a["name"], a["device"]) for a in loaded["external_annotations"]}
    assert {("rank 0, step 0", 0), ("rank 1, step 0", 1)} <= marks


@pytest.mark.cuda
def test_the_table_says_why(trained):
    folder, _ = trained
    recording = merge.merge([folder])
    answer = merge.ranks(recording)
    lines = str(answer).splitlines()
    more = answer["compared_to"]["difference_bytes"]
    assert lines[0] == "Ranks by peak: 2"
    assert lines[2].split()[:3] == ["rank", "1", "cuda:1"]
    assert any(
        line.startswith("rank 1 peaks at ") and line.endswith(f"rank 0 ({more} bytes):")
        for line in lines
    )
    assert any(
        "+3.00 MiB" in line and "other" in line and "two_ranks.py:" in line
        for line in lines
    )
    assert any("activation" in line and "forward [blocks.*]" in line for line in lines)


@pytest.mark.cuda
def test_a_terminal_shows_its_headings_in_colour(trained):
    folder, _ = trained
    shown = in_a_terminal(100, "merge", folder, env={"TERM": "xterm", "NO_COLOR": ""})
    assert "\x1b[1mRanks by peak: 2" in shown and "\x1b[1;36mClocks" in shown


@pytest.mark.cuda
def test_a_rank_that_crashed_and_one_that_is_missing(trained, tmp_path):
    folder, _ = trained
    path = tmp_path / "rank1.mlab"
    data = bytearray((folder / "rank1.mlab").read_bytes())
    data[144] = 1  # open, and nobody has it locked
    path.write_bytes(data)
    recording = merge.merge([path])
    answer = merge.ranks(recording)
    assert answer["missing_ranks"] == [0] and answer["compared_to"] is None
    text = str(answer)
    assert text.startswith("Ranks by peak: 1 of 2, missing: 0\n")
    assert "its process was killed" in text


@pytest.mark.cuda
def test_files_that_do_not_say_whose_they_are(trained, tmp_path):
    """As older ones: the rank is that of the name, and the host, which a .mlab file has
    always had, says that the clock is one."""
    folder, _ = trained
    for rank in (0, 1):
        data = bytearray((folder / f"rank{rank}.mlab").read_bytes())
        data[156:192] = bytes(36)
        (tmp_path / f"run_rank{rank}.mlab").write_bytes(data)
    recording = merge.merge(sorted(tmp_path.glob("*.mlab"), reverse=True))
    rows = recording.ranks()
    assert [row["rank"] for row in rows] == [0, 1]
    assert [row["world_size"] for row in rows] == [None, None]
    assert rows[1]["clock"] == {
        "method": "same_host", "offset_ns": 0, "bound_ns": None, "common_steps": 0,
    }  # fmt: skip
    assert merge.ranks(recording)["missing_ranks"] == []


# ---- Which files ----


def test_two_files_of_one_rank_are_refused(tmp_path):
    one = snapshot(0, sizes=[512])
    paths = write(tmp_path, a=one, b=one)
    with pytest.raises(Error, match=r"rank 0 is in .*a\.pickle and in .*b\.pickle: "):
        merge.merge(paths)
    both = str(tmp_path / "both.pickle")
    merge.merge(write(tmp_path, c=one, d=snapshot(1, sizes=[512]))).write_pickle(
        both, True
    )
    with pytest.raises(Error, match="rank 0 is in "):
        merge.merge([*paths[:1], both])
    with pytest.raises(Error, match="rank 0 is in "):
        merge.merge([both, both])
    with pytest.raises(Error, match=r"rank 0 is in .*a\.pickle and in .*a\.pickle: "):
        merge.merge(paths[:1] * 2)


def test_a_folder_has_one_file_a_rank(tmp_path, capsys):
    write(tmp_path, rank0=snapshot(0, sizes=[512]), rank10=snapshot(10, sizes=[1024]))
    write(tmp_path, rank0_oom=snapshot(0, sizes=[512]), other=snapshot(3, sizes=[512]))
    shutil.copy(tmp_path / "rank0.pickle", tmp_path / "rank2.pickle.txt")
    ranks = [row["rank"] for row in merge.merge([tmp_path]).ranks()]
    assert ranks == [0, 10]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main.main(["merge", str(empty)]) == 1
    assert "no recording of a rank here" in capsys.readouterr().err
    assert main.main(["merge", str(tmp_path), "-o", str(tmp_path / "m.html")]) == 1
    assert "expected a name that ends in .pickle" in capsys.readouterr().err
    assert not (tmp_path / "m.html").exists()


def test_a_folder_as_trainers_callbacks_leave_it(tmp_path):
    """Names with a batch in them, of which one a rank is taken, and several are refused."""
    window = {
        f"rank{rank}.4.memory_snapshot": snapshot(rank, sizes=[512 << rank])
        for rank in range(3)
    }
    write(tmp_path, **window, merged=snapshot(7, sizes=[512]))
    (tmp_path / "rank0.4.memory_snapshot.html").write_text("a page")
    answer = merge.ranks(merge.merge([tmp_path]))
    assert [row["peak_allocated_bytes"] for row in answer["ranks"]] == [2048, 1024, 512]
    write(tmp_path, **{"rank1.8.memory_snapshot": snapshot(1, sizes=[512])})
    with pytest.raises(Error, match=r"rank 1 has 2 recordings, rank1\.4\.\S+ and "
                       r"rank1\.8\.\S+ among them: name the files themselves"):
        merge.merge([tmp_path])
    write(tmp_path, rank1=snapshot(1, sizes=[4096]))
    assert merge.ranks(merge.merge([tmp_path]))["worst"] == 1


def test_a_folder_of_names_that_tell_ranks_apart_at_their_end(tmp_path):
    """A name that has no rank in it is rank 0's, and other ranks' has one behind."""
    names = {"run": 0, "run_rank1": 1, "run_rank2": 2, "other": 5}
    write(tmp_path, **{name: snapshot(r, sizes=[512]) for name, r in names.items()})
    assert [row["rank"] for row in merge.merge([tmp_path]).ranks()] == [0, 1, 2]


def test_a_file_whose_name_is_no_text(tmp_path):
    (made,) = write(tmp_path, made=snapshot(0, sizes=[512]))
    path = os.path.join(os.fsencode(tmp_path), b"r\xff.pickle")
    os.rename(made, path)
    (row,) = merge.merge([path]).ranks()
    assert row["file"] == os.path.join(str(tmp_path), "r\\udcff.pickle")


def test_snapshots_of_torch_and_of_another_source(tmp_path):
    """A stranger's have no notes, no host and no rank but that of the name."""
    torchs = [snapshot(0, sizes=[512 * (r + 1)], place={}) for r in range(3)]
    paths = write(tmp_path, **{f"snap_rank{r}": s for r, s in enumerate(torchs)})
    recording = merge.merge(paths)
    rows = recording.ranks()
    assert [row["rank"] for row in rows] == [0, 1, 2]
    methods = [row["clock"]["method"] for row in rows]
    assert methods == ["reference", "wall_clock", "wall_clock"]
    assert recording.source == ""
    answer = merge.ranks(recording)
    # Of three the one in the middle.
    assert (answer["worst"], answer["compared_to"]["rank"]) == (2, 1)
    assert answer["compared_to"]["difference_bytes"] == 512
    cpu = snapshot(5, sizes=[512])
    cpu["memlab"]["source"] = "cpu"
    gpu = snapshot(6, sizes=[512])
    with pytest.raises(ValueError, match=r"x\.pickle: of source 'cuda', unlike"):
        merge.merge(write(tmp_path, w=cpu, x=gpu))


def test_a_rank_that_recorded_nothing(tmp_path):
    paths = write(tmp_path, a=snapshot(0, sizes=[]), b=snapshot(1, sizes=[1024]))
    recording = merge.merge(paths)
    answer = merge.ranks(recording)
    check(answer, _answers.MergedRanks)
    assert [row["device"] for row in answer["ranks"]] == [0, None]
    assert answer["compared_to"] is None
    assert "no memory recorded" in str(answer)
    # And none that did.
    recording = merge.merge(paths[:1])
    assert merge.ranks(recording)["worst"] is None
    assert "Ranks by peak: 1" in str(merge.ranks(recording))


def test_ranks_alike(tmp_path):
    paths = write(
        tmp_path, **{f"r{r}": snapshot(r, sizes=[MIB, 512], world_size=2) for r in (0, 1)}
    )
    recording = merge.merge(paths)
    answer = merge.ranks(recording)
    assert answer["compared_to"]["by_line"] == []
    assert "All ranks peak at 1.00 MiB, and with the same memory." in str(answer)


def test_processes_of_no_group_are_no_ranks(tmp_path):
    """Their numbers are those of their files."""
    sizes = {0: [MIB, 512], 1: [512], 2: [512]}
    paths = write(
        tmp_path, **{f"rank{i}": snapshot(i, sizes=s, local_rank=-1) for i, s in sizes.items()}
    )
    answer = merge.ranks(merge.merge(paths))
    assert {row["called"] for row in answer["ranks"]} == {"process"}
    text = str(answer)
    assert text.startswith("Processes by peak: 3\n") and "rank" not in text
    assert "process 0 peaks at 1.00 MiB, 1.00 MiB more than process 1" in text
    text = str(merge.ranks(merge.merge(paths[1:])))
    assert "All processes peak at 512 B, and with the same memory." in text
    # One rank beside them, and all are called ranks together.
    paths += write(tmp_path, rank3=snapshot(3, sizes=[512], world_size=4))
    answer = merge.ranks(merge.merge(paths))
    assert str(answer).startswith("Ranks by peak: 4\n")
    assert "process 2" in str(answer) and "rank 3" in str(answer)


def test_three_ranks_of_which_two_are_alike(tmp_path):
    sizes = {"a": [MIB, 512], "b": [MIB, 512], "c": [512]}
    paths = write(
        tmp_path,
        **{name: snapshot(i, sizes=s) for i, (name, s) in enumerate(sizes.items())},
    )
    text = str(merge.ranks(merge.merge(paths)))
    assert "rank 0 peaks at 1.00 MiB, and with the same memory as rank 1, the one" in text
    assert "All ranks" not in text


def test_differences_of_sizes_that_no_memory_has(tmp_path):
    made = snapshot(0, sizes=[2**63 - 8, 2**63 - 8])
    for i, event in enumerate(made["device_traces"][0]):
        event["addr"] = i << 63
    merged = merge.merge(write(tmp_path, a=made, b=snapshot(1, sizes=[512])))
    more = 2**64 - 16 - 512
    for first, second, sign in ((1, 0, 1), (0, 1, -1)):
        found = merged.difference(first, merged, second)
        assert found["difference_bytes"] == sign * more
        assert found["by_category"] == {"unknown": sign * more}
        assert sum(line["difference_bytes"] for line in found["by_line"]) == sign * more


def test_what_makes_the_difference_is_told_until_little_is_left(tmp_path):
    """100 + 50 + 20 + 10 + 5 + 2 + 1 of 188 units more, and 8 less: told is the least that
    leaves a tenth."""
    more = [100, 50, 20, 10, 5, 2, 1]
    low = snapshot(0, sizes=[512] * 7 + [512 * 9])
    high = snapshot(1, sizes=[512 * (1 + m) for m in more] + [512])
    recording = merge.merge(write(tmp_path, low=low, high=high))
    answer = merge.ranks(recording)
    lines = answer["compared_to"]["by_line"]
    assert [line["difference_bytes"] // 512 for line in lines] == [
        100, 50, 20, 10, -8, 5, 2, 1,
    ]  # fmt: skip
    assert answer["compared_to"]["difference_bytes"] == 180 * 512
    rows = str(answer).splitlines()
    start = next(i for i, row in enumerate(rows) if row.startswith("rank 1 peaks at "))
    # 100, 50 and 20 leave 10 of 180.
    assert [row.split()[0] for row in rows[start + 1 : start + 5]] == [
        "+50.0", "+25.0", "+10.0", "+5.00",
    ]  # fmt: skip
    assert rows[start + 4].endswith("in 5 more lines")


def test_many_events_alike_are_read_again(tmp_path):
    """As dense as a file gets, 52 bytes an event: no more than any is it refused."""
    script, saved = _core.Script(), _core.MemorySnapshot()
    saved._begin("script", 10**6, "all", False, True, -1)
    for i in range(200_000):
        script.emit("alloc", (1 << 30) + 4096 * (i % 64), 1000)
        script.emit("free_requested", (1 << 30) + 4096 * (i % 64), 1000)
        script.emit("free_completed", (1 << 30) + 4096 * (i % 64), 1000)
    recording = saved._freeze(31, (2, 1, 1))
    saved._end()
    _core.merge([(recording, "a", -1)]).write_pickle(tmp_path / "merged.pickle", True)
    again = load.read_recording(tmp_path / "merged.pickle")
    assert again.counts(0)["events"] == recording.counts(0)["events"] >= 600_000
    assert [row["rank"] for row in again.ranks()] == [1]


# ---- Clocks ----


def model_of(ends, others):
    """The offset and bound of clocks that tell ENDS and OTHERS of the same steps: the
    lower median, and the ninth decile of the distances from it."""
    apart = [b - a for a, b in zip(ends, others, strict=True)]
    middle = statistics.median_low(apart)
    distances = sorted(abs(d - middle) for d in apart)
    return middle, distances[len(distances) - len(distances) // 10 - 1]


@pytest.mark.parametrize("seed", range(8))
def test_hosts_are_aligned_by_steps(tmp_path, seed):
    """A clock that is off by up to a day, steps that end within 3 ms of each other."""
    random_ = random.Random(seed)
    ahead = random_.randrange(-86400 * SECOND, 86400 * SECOND)
    count = random_.randrange(3, 60)
    base = 10**15
    ends = [base + k * SECOND // 10 + random_.randrange(3_000_000) for k in range(count)]
    late = [base + k * SECOND // 10 + random_.randrange(3_000_000) for k in range(count)]
    zero = snapshot(0, sizes=[512, 512], ends=ends, boot_id="a", ahead=base)
    one = snapshot(1, sizes=[512, 512], ends=late, boot_id="b", ahead=0)
    zero["memlab"]["notes"]["time"] = ends
    one["memlab"]["notes"]["time"] = shifted = [end + ahead for end in late]
    recording = merge.merge(write(tmp_path, one=one, zero=zero))
    clock = recording.ranks()[1]["clock"]
    offset, bound = model_of(ends, shifted)
    assert clock == {
        "method": "steps",
        "offset_ns": offset,
        "bound_ns": bound,
        "common_steps": count,
    }
    assert abs(offset - ahead) <= 3_000_000
    # All of the rank is moved, and by the same: durations stay.
    notes = [n["time_ns"] for n in recording.notes() if n["rank"] == 1]
    assert notes == [end - offset for end in shifted]
    alone = times(load.read_recording(tmp_path / "one.pickle"), 0)
    both = times(recording, 1)
    assert both == sorted(both)
    if alone[0] * 1000 > offset:
        assert [b - both[0] for b in both] == [a - alone[0] for a in alone]
    assert times(recording, 0) == times(load.read_recording(tmp_path / "zero.pickle"), 0)


def test_clocks_of_a_merged_file_are_set_anew(tmp_path):
    """Rank 2 of a host that is 3 s ahead was merged before; rank 3 of it comes now."""
    late = {"ahead": 3 * SECOND, "boot_id": "b", "host": "b"}
    ends = [SECOND + k * SECOND // 10 for k in range(5)]
    paths = write(
        tmp_path,
        a=snapshot(0, sizes=[512], ends=ends, boot_id="a", host="a"),
        c=snapshot(2, sizes=[512, 1024], ends=ends, **late),
        d=snapshot(3, sizes=[512], ends=ends[:2], **late),
    )
    both = str(tmp_path / "both.pickle")
    merge.merge(paths[:2]).write_pickle(both, True)
    again = merge.merge([both, paths[2]])
    once = merge.merge(paths)
    assert [row["clock"] for row in again.ranks()] == [row["clock"] for row in once.ranks()]
    assert [row["clock"]["offset_ns"] for row in again.ranks()] == [0, 3 * SECOND, 3 * SECOND]
    for device in range(3):
        assert times(again, device) == times(once, device)
    assert again.notes() == once.notes()


def test_what_each_way_is_called(tmp_path):
    ends = [10**12 + k * SECOND for k in range(5)]
    late = [end + 2 * SECOND for end in ends]
    anchors = {"anchor_unix_ns": 10**15, "anchor_boot_ns": 10**10}
    paths = write(
        tmp_path,
        a=snapshot(0, sizes=[512], ends=ends, boot_id="a", **anchors),
        b=snapshot(
            1, sizes=[512], boot_id="a",
            anchor_unix_ns=10**15 + 2500, anchor_boot_ns=10**10 + 1000,
        ),
        c=snapshot(2, sizes=[512], ends=late, boot_id="c"),
        d=snapshot(3, sizes=[512], boot_id="d"),
    )  # fmt: skip
    text = str(merge.ranks(merge.merge(paths)))
    assert text.splitlines()[-4:] == [
        "  rank 0: the clock that the others are set to",
        "  rank 1: the same kernel's clock; the two tell one moment 1.5 us apart",
        "  rank 2: set by 5 ends of steps, moved by -2.000 s; nine in ten then agree "
        "within 0.0 us",
        "  rank 3: by its own wall clock; how far that is off is not known",
    ]


def test_a_group_that_is_taken_down_before_files_are_written(tmp_path, monkeypatch):
    """The rank that was known while there was a group is that of the file, too."""
    alone = {**_names.ranks(), "rank": 0, "local_rank": 0, "world_size": 1}
    monkeypatch.setattr(_names, "ranks", lambda: alone)
    with memlab.MemorySnapshot(source="script", file=tmp_path / "a.mlab") as recording:
        assert [row["rank"] for row in recording.data().ranks()] == [None]
        monkeypatch.setattr(
            _names, "ranks", lambda: {**alone, "rank": 2, "local_rank": 1, "world_size": 3}
        )
        recording.data()
        monkeypatch.setattr(_names, "ranks", lambda: alone)
    for of in (recording.data(), load.read_recording(tmp_path / "a.mlab")):
        (row,) = of.ranks()
        assert (row["rank"], row["local_rank"], row["world_size"]) == (2, 1, 3)


# ---- Pictures ----


@pytest.mark.cuda
def test_pictures_of_a_merged_recording_are_those_of_each_rank(trained):
    """All but what the device is called."""
    folder, _ = trained
    merged = merge.merge([folder])
    for rank in (0, 1):
        alone = load.read_recording(folder / f"rank{rank}.mlab")
        name = merged.device_name(rank)
        assert name == f"rank {rank} (cuda:{rank})"
        for kind in ("segments_page", "timeline_page"):
            own = getattr(alone, kind)(rank).decode()
            assert f"<h2>Device {rank}: " in own
            expected = own.replace(f"<h2>Device {rank}: ", f"<h2>{name}: ")
            assert getattr(merged, kind)(rank).decode() == expected
        own = alone.flame_svg("memory", rank).decode()
        expected = own.replace(f"stack, device {rank}: ", f"stack, {name}: ")
        assert merged.flame_svg("memory", rank).decode() == expected != own
    everything = merged.flame_svg("segments").decode()
    assert "<title>rank 0 (cuda:0)\n" in everything
    assert "<title>rank 1 (cuda:1)\n" in everything


def test_a_host_that_is_markup(tmp_path):
    paths = write(
        tmp_path,
        a=snapshot(0, sizes=[512], host="<script>&\x01"),
        b=snapshot(1, sizes=[512], host="b"),
    )
    merged = merge.merge(paths)
    page = merged.timeline_page(0).decode()
    assert "<h2>rank 0 (cuda:0 on &lt;script&gt;&amp;\u2401): max allocated" in page
    head = merged.flame_svg("memory", 0).decode()
    assert "rank 0 (cuda:0 on &lt;script&gt;&amp;\u2401): " in head


# ---- Hostile files ----


def _parts(value, path=()):
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in items:
        yield from _parts(part, (*path, key))


def _replaced(value, path, new):
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    return copy


_HOSTILE = (None, -1, -2, 2**31, 2**63 - 1, 2**64 - 1, "x", [], {}, [2**40], [0, 0, 0], 1.5)


def test_hostile_ranks_cost_what_cannot_be_read(tmp_path):
    """Every value of the ranks of a merged file, in the place of which stands another."""
    paths = write(
        tmp_path,
        a=snapshot(0, sizes=[512, 1024], ends=[5, 6, 7], boot_id="a", host="h"),
        b=snapshot(1, sizes=[512], ends=[6, 7, 8], boot_id="b", host="i"),
    )
    merged = tmp_path / "merged.pickle"
    merge.merge(paths).write_pickle(merged, True)
    whole = pickle.loads(merged.read_bytes())
    ranks = whole["memlab"]["ranks"]
    assert len(ranks) == 2 and "notes" not in whole["memlab"]
    read = told = 0
    for path in _parts(ranks):
        for new in _HOSTILE:
            made = {**whole, "memlab": {**whole["memlab"]}}
            made["memlab"]["ranks"] = _replaced(ranks, path, new)
            recording = _core.Recording.from_bytes(pickle.dumps(made, protocol=4))
            told += bool(recording.unread)
            read += 1
            again = _core.merge([(recording, "again", -1)])
            for device in range(again.device_count):
                again.peak(device)
                recording.device_name(device)
            recording.notes()
            str(merge.ranks(recording))
    assert told > read // 2


def test_hostile_ranks_that_are_too_many(tmp_path):
    """Each would be a host of its own."""
    made = snapshot(0, sizes=[512])
    made["memlab"]["ranks"] = [{"rank": r, "numbers": [0] * (r == 0)} for r in range(4097)]
    recording = _core.Recording.from_bytes(pickle.dumps(made, protocol=4))
    assert recording.ranks() == []
    assert recording.unread == {"memlab.rank": 1}


@pytest.mark.cuda
def test_a_process_number_that_is_none_is_written_and_read(trained, tmp_path):
    """The header of a .mlab file may say anything."""
    folder, _ = trained
    data = bytearray((folder / "rank0.mlab").read_bytes())
    data[160:168] = b"\xff" * 8  # since boot
    (tmp_path / "rank0.mlab").write_bytes(data)
    recording = load.read_recording(tmp_path / "rank0.mlab")
    recording.write_pickle(tmp_path / "rank0.pickle", True)
    assert load.read_recording(tmp_path / "rank0.pickle").ranks() == recording.ranks()


def test_merge_takes_recordings():
    with pytest.raises(ValueError, match="nothing to merge"):
        _core.merge([])
    with pytest.raises(TypeError):
        _core.merge([None])
    with pytest.raises(TypeError):
        _core.merge([(None, "a", 0)])
    with pytest.raises(ZeroDivisionError):
        _core.merge(1 / 0 for _ in [0])
