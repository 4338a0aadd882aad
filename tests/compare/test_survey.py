"""A survey of many ranks: kinds, and what stands out, planted by hand."""

import concurrent.futures
import os
import pickle
import random
import re
import subprocess
import sys

import pytest
from answer_shapes import check
from on_phantom import PROGRAMS, needs_torch
from rank_files import MIB, SECOND, frames, snapshot, write

import memlab
from memlab import _answers, phantom
from memlab._compare import survey
from memlab._errors import Error
from memlab._text import terminal

SIZES = [64 * MIB, 8 * MIB, 4 * MIB]
ENDS = [2 * SECOND, 3 * SECOND, 4 * SECOND]


def _run(folder, ranks=12, **other):
    """Two stages of RANKS / 2 alike; OTHER: the sizes of single ranks, as r3."""
    for rank in range(ranks):
        sizes = SIZES if rank < ranks // 2 else [*SIZES, 32 * MIB]
        content = snapshot(
            rank, sizes=other.get(f"r{rank}", sizes), ends=ENDS, world_size=ranks
        )
        write(folder, **{f"rank{rank}": content})
    return folder


def test_stages_are_kinds_and_no_rank_stands_out(tmp_path):
    answer = memlab.survey(_run(tmp_path))
    assert [kind["ranks"] for kind in answer["kinds"]] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
    ]
    assert [kind["highest_peak_bytes"] for kind in answer["kinds"]] == [76 * MIB, 108 * MIB]
    assert answer["unlike"] == answer["ran_out"] == answer["behind"] == []
    assert (answer["highest"], answer["median_peak_bytes"]) == (6, 76 * MIB)
    assert answer["missing_ranks"] == []


def test_a_rank_that_has_more_is_told_with_its_line(tmp_path):
    more = [64 * MIB, 8 * MIB, 24 * MIB]
    answer = memlab.survey(_run(tmp_path, r3=more))
    [item] = answer["unlike"]
    assert (item["rank"], item["like"], item["like_ranks"]) == (3, 0, 5)
    assert item["difference_bytes"] == 20 * MIB
    [line] = item["by_line"]
    assert (line["difference_bytes"], line["file"], line["line"]) == (20 * MIB, "train.py", 2)
    text = str(answer)
    assert "  rank 3: +20.0 MiB against rank 0 and 4 like it, in step 0" in text
    assert "    +20.0 MiB  train.py:2 train" in text
    assert "0-2, 4-5 (5)" in text


def test_memory_elsewhere_stands_out_though_the_sums_are_equal(tmp_path):
    answer = memlab.survey(_run(tmp_path, r3=[56 * MIB, 16 * MIB, 4 * MIB]))
    [item] = answer["unlike"]
    assert (item["rank"], item["difference_bytes"]) == (3, 0)
    assert [line["difference_bytes"] for line in item["by_line"]] == [-8 * MIB, 8 * MIB]


def test_small_differences_are_of_one_kind(tmp_path):
    answer = memlab.survey(_run(tmp_path, r3=[64 * MIB + MIB, 8 * MIB, 4 * MIB]))
    assert answer["unlike"] == []
    [kind, _] = answer["kinds"]
    assert (kind["lowest_peak_bytes"], kind["highest_peak_bytes"]) == (76 * MIB, 77 * MIB)


def test_buckets_that_were_freed_by_chance_make_no_rank_unlike(tmp_path):
    """DistributedDataParallel's first ones, of 16 MiB, beside which others are made.  Rank 3 peaks
    before these, rank 4 keeps what it should not.
    """
    ddp = "/lib/torch/nn/parallel/distributed.py"
    made = ("_ddp_init_helper", "_pre_forward", "_pre_forward")
    for rank in range(6):
        content = snapshot(rank, sizes=SIZES, ends=ENDS, world_size=6)
        events = content["device_traces"][0]
        for i, function in enumerate(made[: 1 if rank == 3 else 3 if rank == 4 else 2]):
            where = frames((ddp, 1000 + i, function), ("train.py", 10 + i, "train"))
            bucket = {**events[0], "addr": (2 + i) << 40, "size": 16 * MIB, "frames": where}
            events.append({**bucket, "time_us": events[-1]["time_us"] + 1})
            if i == 0 and rank in (1, 4):
                freed = {**events[-1], "action": "free_completed", "frames": []}
                events.append({**freed, "time_us": events[-1]["time_us"] + 1})
        write(tmp_path, **{f"rank{rank}": content})
    answer = memlab.survey(tmp_path)
    check(answer, _answers.Survey)
    [kind] = answer["kinds"]
    assert kind["ranks"] == [0, 1, 2, 3, 5]
    assert (kind["lowest_peak_bytes"], kind["highest_peak_bytes"]) == (92 * MIB, 108 * MIB)
    [unlike] = answer["unlike"]
    assert (unlike["rank"], unlike["by_line"][0]["difference_bytes"]) == (4, 16 * MIB)
    found = [rank["first_buckets_bytes"] for rank in answer["ranks"]]
    assert found == [16 * MIB, 0, 16 * MIB, 0, 0, 16 * MIB]
    assert "first buckets were still there, on ranks 0, 2, 5." in str(answer)


def test_long_places_are_whole_in_80_columns(tmp_path):
    answer = dict(memlab.survey(_run(tmp_path, r3=[64 * MIB, 8 * MIB, 24 * MIB])))
    [line] = answer["unlike"][0]["by_line"]
    line = {**line, "file": f"/{'a_long_name/' * 5}model.py", "module": "layers.*.attention." * 3}
    ranks = list(range(0, 40, 2))
    answer["unlike"] = answer["differing"] = [{**answer["unlike"][0], "ranks": ranks, "by_line": [line]}]
    answer["ooms"] = [{**line, "rank": r, "step": 4, "requested_bytes": MIB} for r in ranks]
    answer["growing"] = [
        {**line, "rank": r, "bytes_per_step": MIB, "since_step": 2} for r in ranks
    ]
    text = survey.text(answer)
    told = terminal.fit(text, 80)
    assert max(map(len, told.splitlines())) <= 80
    assert "".join(told.split()) == "".join(text.split())
    assert " ".join(told.split()).count("14 and 12 groups more") == 4


def test_a_rank_behind_and_one_that_ran_out(tmp_path):
    _run(tmp_path)
    late = snapshot(4, sizes=SIZES, ends=ENDS[:1], world_size=12)
    failed = snapshot(5, sizes=SIZES, ends=ENDS, world_size=12)
    failed["device_traces"][0].append(
        {"action": "oom", "addr": 0, "size": 1 << 40, "stream": 0, "frames": []}
        | {"time_us": 5 * SECOND // 1000}
    )
    # Three events in steps 1 to 3 for the others, so that their steps are known.
    write(tmp_path, rank4=late, rank5=failed)
    for rank in range(12):
        if rank in (4, 5):
            continue
        content = snapshot(rank, sizes=SIZES, ends=ENDS, world_size=12)
        content["device_traces"][0].append(
            {"action": "alloc", "addr": 7 << 40, "size": 512, "stream": 0, "frames": []}
            | {"time_us": 5 * SECOND // 1000}
        )
        write(tmp_path, **{f"rank{rank}": content})
    answer = memlab.survey(tmp_path)
    assert answer["ran_out"] == [5]
    assert answer["behind"] == [{"rank": 4, "last_step": 0, "usual_step": 3}]
    assert "Ran out of memory: rank 5." in str(answer)
    assert "Behind: rank 4. Rank 4 ended in step 0, most ranks in step 3." in str(answer)


def test_a_missing_rank_is_told(tmp_path):
    _run(tmp_path)
    (tmp_path / "rank7.pickle").unlink()
    answer = memlab.survey(tmp_path)
    assert answer["missing_ranks"] == [7]
    assert str(answer).startswith("Ranks: 11 of 12, missing: 7\n")


def test_the_answer_is_the_same_in_any_order_and_by_any_executor(tmp_path):
    _run(tmp_path, r3=[64 * MIB, 8 * MIB, 24 * MIB])
    files = sorted(map(str, tmp_path.iterdir()))
    want = memlab.survey(files, jobs=1)
    random.Random(7).shuffle(files)
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        there = memlab.survey(files, executor=pool)
    assert dict(there) == dict(want) == dict(memlab.survey(files, jobs=3))
    assert pickle.loads(pickle.dumps(there)) == dict(want)


def test_names_with_a_star(tmp_path):
    _run(tmp_path)
    answer = memlab.survey(str(tmp_path / "rank1*.pickle"))
    assert [rank["rank"] for rank in answer["ranks"]] == [1, 10, 11]
    with pytest.raises(Error, match="no file matches"):
        memlab.survey(str(tmp_path / "x*"))


def test_names_with_a_star_in_a_store(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
    _run(tmp_path)
    store = fsspec.filesystem("memory")
    for rank in (1, 2):
        store.put_file(str(tmp_path / f"rank{rank}.pickle"), f"/run/rank{rank}.pickle")
    answer = memlab.survey("memory://run/*.pickle")
    assert [rank["rank"] for rank in answer["ranks"]] == [1, 2]


def test_two_files_of_a_rank_are_refused(tmp_path):
    _run(tmp_path)
    with pytest.raises(Error, match="rank 0 is in .*rank0.* and in .*rank1"):
        content = (tmp_path / "rank0.pickle").read_bytes()
        (tmp_path / "rank1.pickle").write_bytes(content)
        memlab.survey(tmp_path)


def test_jobs_below_one_are_refused(tmp_path):
    with pytest.raises(ValueError, match="jobs must be at least 1, not 0"):
        memlab.survey(_run(tmp_path), jobs=0)


def test_memlab_merge_of_many_ranks_is_a_survey(tmp_path, capsys):
    from memlab.__main__ import main

    _run(tmp_path, ranks=18, r3=[64 * MIB, 8 * MIB, 24 * MIB])
    assert main(["merge", str(tmp_path)]) == 0
    assert "Unlike the others\n  rank 3: +20.0 MiB" in capsys.readouterr().out
    # Of a few, clocks are aligned and each is in the table.
    assert main(["merge", str(tmp_path / "rank?.pickle")]) == 0
    assert "Ranks by peak: 10 of 18" in capsys.readouterr().out


def test_the_page_has_a_bar_a_rank_that_leads_to_its_own_page(tmp_path, capsys):
    from memlab.__main__ import main

    _run(tmp_path, r3=[64 * MIB, 8 * MIB, 24 * MIB])
    (tmp_path / "rank3.html").write_text("")
    page = tmp_path / "ranks.html"
    assert main(["merge", str(tmp_path), "--html", str(page)]) == 0
    assert f"Page: {page}" in capsys.readouterr().out
    text = page.read_text()
    titles = re.findall(r"<title>rank (\d+): peak ([^,]*),", text)
    assert [int(rank) for rank, _ in titles] == list(range(12))
    assert titles[3][1] == "96.0 MiB"
    # In the picture, and in the table.
    assert re.findall(r'href="([^"]*)"', text) == ["rank3.html", "rank3.html"]
    assert f"memlab view --rank 4 {tmp_path}" in text
    assert "+20.0 MiB against rank 0" in text
    # Half of the highest is half as tall.
    tall = [float(t) for t in re.findall(r'height="([0-9.]+)" fill="[^"]*" fill-opacity="1"', text)]
    assert tall[6] == max(tall)
    assert tall[0] / tall[6] == pytest.approx(76 / 108, abs=0.01)


def test_groups_that_should_be_alike_are_told_by_line(tmp_path):
    """A third of the ranks are no few ranks, and have 76 of 108 MiB in common with the rest."""
    for rank in range(12):
        sizes = SIZES if rank < 8 else [*SIZES, 32 * MIB]
        content = snapshot(rank, sizes=sizes, ends=ENDS, world_size=12)
        write(tmp_path, **{f"rank{rank}": content})
    answer = memlab.survey(tmp_path)
    assert answer["unlike"] == []
    [item] = answer["differing"]
    assert (item["ranks"], item["like"], item["like_ranks"]) == ([8, 9, 10, 11], 0, 8)
    [line] = item["by_line"]
    assert (line["difference_bytes"], line["line"]) == (32 * MIB, 3)
    text = str(answer)
    assert "Groups that have most in common, and differ\n  ranks 8-11: +32.0 MiB against" in text


@needs_torch
@pytest.mark.slow
def test_what_was_planted_among_ranks_that_talk_is_named(tmp_path):
    """Eight ranks of FSDP2; tests/programs/planted.py says what is planted.  Each is told with
    its line, module and step.
    """
    program = PROGRAMS / "planted.py"
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "8", "-m",
         "memlab", "run", "--out", tmp_path, program, "12"],
        env={**os.environ, **phantom.environment("rtx4090", 8)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # One terminal, one summary, also where a rank ran out and went on.
    assert done.stderr.count("Peak on") == 1
    lines = {text.strip(): i for i, text in enumerate(program.read_text().splitlines(), 1)}
    down, wide = lines["return x + self.down(wide.relu())"], lines["wide = wide.exp().log()"]
    kept = lines["self.kept.append(x.detach()[:32].clone())"]
    full = lines['torch.empty(1 << 40, device="cuda")']
    answer = memlab.survey(tmp_path)
    check(answer, _answers.Survey)

    def place(row):
        return row["line"], row["function"], row["module"]

    [unlike] = answer["unlike"]
    assert (unlike["ranks"], unlike["step"], unlike["like"]) == ([1], 3, 0)
    assert place(unlike["by_line"][0]) == (down, "forward", "blocks.*")
    [differing] = answer["differing"]
    assert (differing["ranks"], differing["like"]) == ([6, 7], 0)
    assert place(differing["by_line"][0]) == (wide, "forward", "blocks.*")
    # What exp() made is kept for the backward pass of each block: 2,048 rows of 2,048 numbers.
    assert differing["by_line"][0]["difference_bytes"] == 4 * (16 << 20)
    [oom] = answer["ooms"]
    assert (oom["rank"], oom["step"], oom["requested_bytes"]) == (5, 4, 4 << 40)
    assert place(oom) == (full, "forward", "blocks.0")
    assert answer["ran_out"] == [5]
    [growing] = answer["growing"]
    assert (growing["rank"], growing["bytes_per_step"], growing["since_step"]) == (3, 64 << 10, 0)
    assert place(growing) == (kept, "forward", "blocks.2")
    said = str(answer)
    assert f"planted.py:{kept} forward [blocks.2] keeps up to 64.0 KiB a step since step 0" in said
    assert f"planted.py:{full} forward [blocks.0] asked for 4.00 TiB in step 4." in said


def test_a_folder_of_many_ranks_is_a_summary_and_a_page_of_one(tmp_path, capsys):
    from memlab.__main__ import main

    _run(tmp_path, ranks=18)
    assert main(["view", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    page = tmp_path / "memlab.html"
    assert said.startswith(f"Page: {page}\nThe summary of 18 ranks.")
    assert "href" not in page.read_text()
    assert main(["view", "--rank", "4", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"Page: {tmp_path / 'rank4.html'}\n"
    assert main(["view", str(tmp_path)]) == 0
    assert 'href="rank4.html"' in page.read_text()
    assert main(["view", "--rank", "18", str(tmp_path)]) == 1
    assert "rank 18 has no recording here; known by their names: 0-17" in capsys.readouterr().err
