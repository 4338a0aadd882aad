"""memlab diff: what is compared, that its figures add up, and what it prints."""

import gzip
import json
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from answer_shapes import check
from modes import NEW
from rank_files import frames, snapshot, write
from report_keys import undocumented

from memlab import _answers, _core
from memlab._cli import main
from memlab._compare import diff, merge
from memlab._errors import Error

KIB = 1 << 10
BLOCK = 4 * KIB
ROW_KEYS = ("before_bytes", "after_bytes", "before_blocks", "after_blocks")


def recording(events, **said):
    """Of EVENTS (action, number of the block, its size, frames), one a millisecond."""
    made = snapshot(0, sizes=[], **said)
    made["device_traces"] = [
        [
            {
                "action": action,
                "addr": (1 << 40) + (block << 20),
                "size": size,
                "stream": 0,
                "time_us": 1000 * i,
                "frames": frames(*places),
            }
            for i, (action, block, size, places) in enumerate(events)
        ]
    ]
    return made


def read(made):
    return _core.Recording.from_bytes(pickle.dumps(made, protocol=4))


def allocations(*places, file="/home/a/project/train.py", function="train"):
    """An event for each of PLACES: (line, blocks of 4 KiB)."""
    return [
        ("alloc", i, size * BLOCK, [(file, line, function)])
        for i, (line, size) in enumerate(places)
    ]


def rows(part):
    """By line: (line before, line now, change, by what, units before and after)."""
    return [
        (
            row["before_line"],
            row["line"],
            row["change"],
            row["matched_by"],
            row["before_bytes"] // BLOCK,
            row["after_bytes"] // BLOCK,
        )
        for row in part["by_line"]
    ]


def difference(before, after, **more):
    return read(recording(before)).difference(0, read(recording(after)), 0, **more)


# ---- Which line is which ----


def test_lines_that_moved_are_the_same():
    before = allocations((10, 1), (11, 2), (12, 3))
    after = allocations((14, 1), (15, 2), (16, 3))
    assert rows(difference(before, after)) == []


def test_a_line_in_between():
    """By line numbers alone, 11 would be what was at 10, and so on."""
    before = allocations((10, 1), (11, 2), (12, 3), (13, 4))
    after = allocations((10, 1), (11, 8), (12, 2), (13, 3), (14, 4))
    assert rows(difference(before, after)) == [(0, 11, "appeared", "", 0, 8)]
    assert rows(difference(after, before)) == [(11, 11, "gone", "", 8, 0)]


def test_a_line_that_moved_and_grew():
    before = allocations((10, 1), (11, 2), (12, 3))
    after = allocations((20, 1), (21, 9), (22, 3))
    assert rows(difference(before, after)) == [(11, 21, "grew", "order", 2, 9)]


def test_the_same_code_on_another_machine():
    before = allocations((10, 1), (11, 2))
    after = allocations((10, 1), (11, 5), file="/mnt/b/project/train.py")
    assert rows(difference(before, after)) == [(11, 11, "grew", "line", 2, 5)]


def test_the_longer_tail_tells_files_of_one_name_apart():
    both = ["/a/one/model.py", "/a/two/model.py"]
    moved = ["/b/two/model.py", "/b/one/model.py"]

    def of(files, sizes):
        return [
            ("alloc", i, size * BLOCK, [(file, 7, "forward")])
            for i, (file, size) in enumerate(zip(files, sizes, strict=True))
        ]

    assert rows(difference(of(both, (1, 2)), of(moved, (2, 1)))) == []


def test_a_renamed_file_and_a_renamed_function():
    before = allocations((10, 1), (11, 2), (12, 3))
    after = allocations((10, 1), (11, 4), (12, 3), file="/home/a/project/main.py")
    assert rows(difference(before, after)) == [(11, 11, "grew", "file", 2, 4)]
    after = allocations((10, 1), (11, 4), (12, 3), function="fit")
    assert rows(difference(before, after)) == [(11, 11, "grew", "function", 2, 4)]


def test_a_function_that_moved_to_another_file():
    """The whole of it; and no line of another function is taken for one of it."""
    home = "/home/a/project/"
    rest = [("alloc", 9, BLOCK, [(home + "train.py", 50, "train")])]
    before = allocations((10, 1), (11, 2), function="augment") + rest
    after = allocations((3, 1), (4, 2), function="augment", file=home + "tools.py") + rest
    assert rows(difference(before, after)) == []


def test_nothing_is_taken_for_what_has_nothing_in_common():
    before = allocations((10, 1), file="/a/x.py", function="f")
    after = [("alloc", 0, BLOCK, [("/b/y.py", 70, "g")])]
    for row in rows(difference(before, after)):
        assert row[2] in ("appeared", "gone")


def test_the_same_code_is_told_by_its_lines():
    """Two instants of one file: a line that allocates is never another one."""
    first = allocations((10, 1), (11, 1))
    later = [*first, ("free_completed", 0, BLOCK, []), *allocations((12, 1))]
    one = read(recording(later))
    part = one.difference(0, one, 0, event=1, after_event=3, same_code=True)
    assert [(row[1], row[4], row[5]) for row in rows(part)] == [(10, 1, 0), (12, 0, 1)]


def test_files_whose_names_many_share():
    """Of 30 files named __init__.py each is found on another machine."""
    def of(root, sizes):
        return [
            ("alloc", i, size * BLOCK, [(f"{root}/p{i % 30}/__init__.py", i, "f")])
            for i, size in enumerate(sizes)
        ]

    sizes = [1] * 300
    grown = [1] * 123 + [7] + [1] * 176
    found = rows(difference(of("/a", sizes), of("/b/c", grown)))
    assert found == [(123, 123, "grew", "line", 1, 7)]


def test_a_file_of_thousands_of_lines():
    """It is compared by its line numbers alone."""
    sizes = [(line, 1) for line in range(1, 2201)]
    before = allocations(*sizes)
    grown = allocations(*sizes[:1000], (1001, 3), *sizes[1001:])
    assert rows(difference(before, grown)) == [(1001, 1001, "grew", "line", 1, 3)]


# ---- Moved in time ----


def test_memory_that_is_freed_later_moved():
    """11 is freed before 12 comes, and then is not."""
    free = [("free_requested", 0, 2 * BLOCK, []), ("free_completed", 0, 2 * BLOCK, [])]
    x, y, z = allocations((11, 2), (12, 5), (13, 1))
    (kept,) = difference([x, *free, y, z], [x, y, z, *free])["by_line"]
    assert (kept["line"], kept["change"], kept["move"]) == (11, "moved", "freed_later")
    (left,) = difference([x, y, z, *free], [x, *free, y, z])["by_line"]
    assert (left["line"], left["change"], left["move"]) == (11, "moved", "freed_earlier")


def test_memory_that_comes_earlier_moved():
    x, y = allocations((11, 5), (12, 1))
    free = [("free_requested", 0, 5 * BLOCK, []), ("free_completed", 0, 5 * BLOCK, [])]
    (row,) = difference([x, *free, y], [y, x, *free])["by_line"]
    assert (row["line"], row["change"], row["move"]) == (12, "moved", "allocated_earlier")
    (row,) = difference([y, x, *free], [x, *free, y])["by_line"]
    assert (row["line"], row["change"], row["move"]) == (12, "moved", "allocated_later")


# ---- Figures ----


def random_program(rng):
    """Lines of some functions: (file, function, line, sizes that it allocates)."""
    lines = []
    for file in ("/w/a/train.py", "/w/a/model.py", "/w/a/b/model.py")[: rng.randint(1, 3)]:
        number = 1
        for function in ("main", "forward", "step")[: rng.randint(1, 3)]:
            for _ in range(rng.randint(0, 5)):
                number += rng.randint(1, 4)
                lines.append((file, function, number, rng.randint(1, 6)))
    return lines


def random_edit(rng, lines):
    """LINES after lines came, went, moved and changed."""
    edited, shift = [], 0
    for file, function, number, size in lines:
        shift += rng.choice((0, 0, 0, 1, 5))
        if rng.random() < 0.1:
            continue
        if rng.random() < 0.15:
            edited.append((file, function, number + shift, rng.randint(1, 6)))
            shift += 1
        edited.append((file, function, number + shift, size + rng.choice((0, 0, 0, 2))))
    return edited


def random_run(rng, lines):
    events, live, block = [], [], 0
    for _ in range(rng.randint(1, 3)):
        for file, function, line, size in lines:
            events.append(("alloc", block, size * BLOCK, [(file, line, function)]))
            live.append((block, size * BLOCK))
            block += 1
            while live and rng.random() < 0.4:
                freed, size = live.pop(rng.randrange(len(live)))
                events.append(("free_requested", freed, size, []))
                events.append(("free_completed", freed, size, []))
    return read(recording(events))


def turned(row):
    """ROW as the other way round has it, where it says which way."""
    changes = {"appeared": "gone", "gone": "appeared", "grew": "shrank", "shrank": "grew"}
    moves = {
        "freed_later": "freed_earlier", "freed_earlier": "freed_later",
        "allocated_earlier": "allocated_later", "allocated_later": "allocated_earlier",
    }
    return (
        changes.get(row["change"], row["change"]), moves.get(row["move"], row["move"]),
        row["matched_by"], row["category"], -row["difference_bytes"],
        *(row[key] for key in (ROW_KEYS[1], ROW_KEYS[0], ROW_KEYS[3], ROW_KEYS[2])),
    )


def as_it_is(row):
    return (
        row["change"], row["move"], row["matched_by"], row["category"],
        row["difference_bytes"], *(row[key] for key in ROW_KEYS),
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_two_runs(seed):
    """A run and itself are the same; there and back are alike; all adds up."""
    rng = random.Random(seed)
    lines = random_program(rng)
    first = random_run(rng, lines)
    second = random_run(rng, random_edit(rng, lines))
    itself = first.difference(0, first, 0, phases=True)
    for part in (itself, *itself["phases"]):
        assert part["by_line"] == part["by_module"] == [] and part["by_category"] == {}
    there, back = first.difference(0, second, 0), second.difference(0, first, 0)
    assert sorted(map(turned, back["by_line"])) == sorted(map(as_it_is, there["by_line"]))
    for side, of in (("before", first), ("after", second)):
        peak = of.peak(0)["peak"]
        assert there[side]["event"] == peak["event"]
        assert there[f"{side}_bytes"] == peak["allocated_bytes"]
    more = there["difference_bytes"]
    assert more == there["after_bytes"] - there["before_bytes"]
    assert sum(row["difference_bytes"] for row in there["by_line"]) == more
    assert sum(row["difference_bytes"] for row in there["by_module"]) == more
    assert sum(there["by_category"].values()) == more


def test_every_process_gives_the_same_answer(tmp_path):
    """Half of them gave another, as the addresses that a process has decided it."""
    files = []
    for name in ("numbers", "shared"):
        packed = Path(__file__).parents[1] / "data" / "golden" / f"{name}.mlab.gz"
        files.append(tmp_path / f"{name}.mlab")
        files[-1].write_bytes(gzip.decompress(packed.read_bytes()))
    command = [sys.executable, "-m", "memlab", "diff", *files]
    answers = {subprocess.run(command, capture_output=True).stdout for _ in range(5)}
    assert len(answers) == 1
    assert b"By line" in answers.pop()


def test_any_event_can_be_compared():
    rng = random.Random(1)
    run = random_run(rng, random_program(rng))
    last = run.counts(0)["events"] - 1
    for event in (-1, 0, last // 2, last):
        part = run.difference(0, run, 0, event=event, after_event=last)
        assert part["before"]["event"] == event + 1
        assert part["before_bytes"] == run.peak(0, event)["peak"]["allocated_bytes"]
        assert part["after_bytes"] == run.peak(0, last)["peak"]["allocated_bytes"]
    for event in (-2, last + 1, 2**70):
        with pytest.raises(IndexError):
            run.difference(0, run, 0, event=event)
    with pytest.raises(IndexError):
        run.difference(0, run, 1)


# ---- The command ----


def two_files(tmp_path, **more):
    before = recording(allocations((10, 1), (11, 2)), **more)
    after = recording(allocations((10, 1), (11, 4), (12, 3)), **more)
    return write(tmp_path, before=before, after=after)


def test_what_the_command_prints(tmp_path, capsys):
    paths = two_files(tmp_path)
    assert main.main(["diff", *paths]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = "/home/a/project/train.py"
    assert lines[0] == (
        f"+20.0 KiB at the peak: {place}:12 train (appeared, 12.0 KiB), "
        f"{place}:11 train (grew, 8.00 KiB)"
    )
    assert any(
        line.split() == ["+8.00", "KiB", "grew", "8.00", "KiB", "->", "16.0", "KiB",
                         "unknown", f"{place}:11", "train"]
        for line in lines
    )
    assert main.main(["diff", *paths[::-1]]) == 0
    assert "-20.0 KiB at the peak: " in capsys.readouterr().out
    assert main.main(["diff", paths[0], paths[0]]) == 0
    assert capsys.readouterr().out.startswith("The same memory at the peak: 12.0 KiB\n")


def test_for_machines(tmp_path, capsys):
    paths = two_files(tmp_path)
    assert main.main(["diff", *paths, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    check(answer, _answers.Diff)
    assert undocumented(answer) == set()
    assert [answer[side]["file"] for side in ("before", "after")] == paths
    assert [answer[side]["at"] for side in ("before", "after")] == ["peak", "peak"]
    assert answer["difference"]["difference_bytes"] == 5 * BLOCK


def test_two_instants_of_a_file(tmp_path, capsys):
    """Two steps, each of which leaves one block more of line 10."""
    path = write(
        tmp_path,
        run=recording(
            allocations((10, 1), (11, 2), (10, 1), (10, 1)),
            ends=(1_500_000, 2_500_000, 3_500_000),
        ),
    )[0]
    assert main.main(["diff", path, "--at", "0,2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["difference"]
    assert [answer[side]["step"] for side in ("before", "after")] == [0, 2]
    assert rows(answer) == [(10, 10, "grew", "line", 1, 3)]
    assert main.main(["diff", path, "--at", "event:0,end"]) == 0
    assert "+16.0 KiB at the end: " in capsys.readouterr().out
    # Within one step all of it comes later; that is why it grew.
    for at, change in (("event:0,event:1", "grew"), ("event:1,event:0", "shrank")):
        assert main.main(["diff", path, "--at", at, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)["difference"]
        assert [row["change"] for row in answer["by_line"]] == [change]
        assert answer["phases"] == []
    assert main.main(["diff", path, "--at", "0,9"]) == 1
    assert "steps 0 to " in capsys.readouterr().err


def test_two_ranks_of_a_file(tmp_path, capsys):
    paths = [
        write(tmp_path, **{f"rank{rank}": snapshot(rank, sizes=[512 * (rank + 1)] * 2)})[0]
        for rank in (0, 1)
    ]
    merged = str(tmp_path / "merged.pickle")
    merge.merge(paths).write_pickle(merged, True)
    assert main.main(["diff", merged, "--ranks", "0,1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [answer[side]["name"][:6] for side in ("before", "after")] == ["rank 0", "rank 1"]
    assert answer["difference"]["difference_bytes"] == 1024
    assert main.main(["diff", merged, "--ranks", "0,7"]) == 1
    assert "no memory of rank 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [], ["--at", "3"], ["--at", "1,2,3"], ["--at", "never"], ["--ranks", "1"],
        ["--json", "--markdown"],
    ],
)
def test_wrong_usage(tmp_path, capsys, words):
    path = two_files(tmp_path)[0]
    with pytest.raises(SystemExit) as ended:
        main.main(["diff", path, *words])
    assert ended.value.code == 2
    assert "usage: memlab diff" in capsys.readouterr().err


def test_recordings_that_cannot_be_compared(tmp_path):
    path = two_files(tmp_path)[0]
    with pytest.raises(OSError, match="absent"):
        diff.diff(path, tmp_path / "absent.pickle")
    empty = write(tmp_path, empty=recording([]))[0]
    with pytest.raises(Error, match=r"empty\.pickle: No memory was allocated"):
        diff.diff(path, empty)
    with pytest.raises(Error, match="no memory of device 3"):
        diff.diff(path, path, device=3)


HOSTILE = "<script>alert(1)</script>\x1b[31m|`@all`\u202e\n# x\udc80"


def test_names_from_a_recording_stay_names(tmp_path, capsys):
    paths = write(
        tmp_path,
        a=recording(allocations((1, 1))),
        b=recording(allocations((1, 1), (2, 1), file=HOSTILE, function=HOSTILE)),
    )
    for form in ((), ("--markdown",)):
        assert main.main(["diff", *paths, *form]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out and "\u202e" not in out and "\n# x" not in out
        assert not form or "<script" not in out and "@all" not in out
    page = tmp_path / "page.html"
    assert main.main(["diff", *paths, "--html", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "default-src 'none'" in text
    assert page.stat().st_mode & 0o777 == NEW


def test_the_page_has_what_the_answer_has(tmp_path):
    paths = two_files(tmp_path)
    page = tmp_path / "page.html"
    answer = diff.diff(*paths, html=page)
    text = re.sub(r"<[^>]*>", "|", page.read_text())
    assert " and ".join(f"{path} cuda:0" for path in paths) in text
    assert diff.headline(answer) in text
    for row in answer["difference"]["by_line"]:
        assert f"{row['file']}:{row['line']} {row['function']}" in text
        assert row["change"] in text
