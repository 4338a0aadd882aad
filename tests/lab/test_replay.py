"""memlab replay: recorded runs in the model of the allocator, as they were and otherwise."""

import contextlib
import copy
import json
import os
import pickle
import random

import pytest
from allocator_runs import GROWING, HELD, MIB, REAL, real, recording, run
from answer_shapes import check
from rank_files import snapshot as ranks_snapshot

import memlab
from memlab import _answers
from memlab._cli import main
from memlab._files import load
from memlab._lab import replay
from memlab._report import parts as _report_parts

EXPANDABLE = "expandable_segments:True"
MISMATCHES = ("mismatched_addresses", "mismatched_segments", "mismatched_blocks")


def of(*steps, **options):
    return recording(run(*steps)).replay(0, **options)


def mismatches(answer):
    return [answer[key] for key in MISMATCHES]


def in_pool(snapshot, lines):
    """SNAPSHOT with what the steps LINES made in a private pool, as torch 2.12 tells it."""
    private = set()
    for event in snapshot["device_traces"][0]:
        if event["frames"][0]["line"] in lines:
            private.add(event["addr"])
        elif event["action"] == "segment_alloc":
            private.discard(event["addr"])
        event["pool_id"] = (0, 1) if event["addr"] in private else (0, 0)
    for segment in snapshot["segments"]:
        if segment["address"] in private:
            segment["segment_pool_id"] = (0, 1)
    return recording(snapshot)


# ---- Real runs ----


@pytest.mark.parametrize("name", REAL)
def test_every_address_segment_and_block_of_a_real_run(name, capsys):
    snapshot, truth = real(name)
    answer = recording(snapshot).replay(0)
    with capsys.disabled():
        print(f"\n{name}: {answer['events']} events, mismatches {mismatches(answer)}", end="")
    assert answer["events"] == truth["entries"] == len(snapshot["device_traces"][0])
    assert answer["compared"] and mismatches(answer) == [0, 0, 0]
    for kind in ("allocated", "active", "requested", "reserved"):
        assert answer[f"{kind}_peak_bytes"] == truth["stats"][f"{kind}_bytes.all.peak"]
        assert answer["recorded"][f"{kind}_peak_bytes"] == answer[f"{kind}_peak_bytes"]
    assert answer["retries"] == truth["stats"]["num_alloc_retries"]
    assert answer["ooms"] == truth["stats"]["num_ooms"]
    assert answer["allocations"] == truth["stats"]["allocation.all.allocated"]
    assert answer["exact"] == (name != "gpt2.oom")


@pytest.mark.parametrize("tenths", [3, 6])
@pytest.mark.parametrize("name", ["gpt2.default", "gpt2.oom", "streams.expandable"])
def test_a_window_of_a_real_run(name, tenths):
    """The state before it is worked out from the end, pending frees too."""
    snapshot, truth = real(name)
    events = snapshot["device_traces"][0]
    snapshot["device_traces"] = [events[len(events) * tenths // 10 :]]
    answer = recording(snapshot).replay(0)
    assert mismatches(answer) == [0, 0, 0]
    assert answer["recorded"]["reserved_peak_bytes"] == answer["reserved_peak_bytes"]
    changed = recording(snapshot).replay(0, conf=EXPANDABLE)
    assert "memory was in use before the recording began" in changed["inexact_because"]


def _pairs():
    for before in REAL:
        for after in REAL:
            if before != after and before.split(".")[0] == after.split(".")[0]:
                # Ran out of memory, so it is not the whole program.
                if not before.endswith(".oom"):
                    yield before, after


@pytest.mark.parametrize("before, after", list(_pairs()))
def test_from_one_run_of_a_program_to_its_other_runs(before, after, capsys):
    snapshot, _ = real(before)
    _, truth = real(after)
    conf, memory = truth["conf"], None
    if truth["frac"]:
        # The limit on the process, as half of what the device has.
        memory = 2 * int(truth["frac"])
        conf = ",".join(filter(None, [conf, "per_process_memory_fraction:0.5"]))
    answer = recording(snapshot).replay(0, conf=conf, memory=memory)
    stats = truth["stats"]
    wrong = answer["reserved_peak_bytes"] / stats["reserved_bytes.all.peak"] - 1
    with capsys.disabled():
        print(
            f"\n{before} -> {after}: {answer['reserved_peak_bytes']} reserved, "
            f"really {stats['reserved_bytes.all.peak']} ({wrong:+.2%})", end="",
        )
    assert abs(wrong) < 0.01
    assert answer["allocated_peak_bytes"] == stats["allocated_bytes.all.peak"]
    low, high = answer["reserved_peak_range_bytes"]
    assert low <= answer["reserved_peak_bytes"] <= high
    assert (answer["retries"], answer["ooms"]) == (
        stats["num_alloc_retries"], stats["num_ooms"],
    )
    if answer["ooms"]:
        assert answer["oom"]["file"].endswith("loss_utils.py")
        # It asked for 394 MiB, which did not fit in 3.5 GB.
        assert answer["oom"]["missing_bytes"] > 0


# ---- The check can fail ----


def test_another_address_is_a_mismatch():
    snapshot, _ = real("gpt2.default")
    events = snapshot["device_traces"][0]
    moved = next(e for e in events if e["action"] == "alloc" and e["size"] < 512)
    for event in events:
        if event["addr"] == moved["addr"] and not event["action"].startswith("segment"):
            event["addr"] += 1 << 20
    answer = recording(snapshot).replay(0)
    assert answer["mismatched_addresses"] > 0
    assert "the model does not replay the recording exactly" in answer["inexact_because"]


def test_another_segment_is_a_mismatch():
    snapshot = run(*GROWING)
    # As if a request of 40 MiB had taken 42.
    for event in snapshot["device_traces"][0]:
        if event["action"] == "segment_alloc" and event["size"] == 40 * MIB:
            event["size"] = 42 * MIB
    assert recording(snapshot).replay(0)["mismatched_segments"] > 0


def test_another_block_at_the_end_is_a_mismatch():
    snapshot, _ = real("gpt2.default")
    block = next(
        b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "inactive"
    )
    block["state"] = "active_pending_free"
    assert recording(snapshot).replay(0)["mismatched_blocks"] > 0


# ---- By hand ----


def test_as_it_was():
    answer = of(*GROWING)
    assert mismatches(answer) == [0, 0, 0]
    assert answer["exact"] and answer["inexact_because"] == []
    assert answer["reserved_peak_bytes"] == 120 * MIB
    assert answer["allocated_peak_bytes"] == 60 * MIB
    assert answer["reserved_peak_range_bytes"] == [120 * MIB, 120 * MIB]
    # Events: of each block a segment, its allocation and two of its free.
    assert answer["peak_event"] == answer["at_reserved_peak"]["event"] == 9
    assert answer["at_reserved_peak"]["unused_bytes"] == 60 * MIB
    assert answer["at_reserved_peak"]["inactive_split_bytes"] == 0
    assert (answer["memory_bytes"], answer["oom"], answer["driver_calls"]) == (None, None, 3)


def test_expandable_segments_grow_instead():
    answer = of(*GROWING, conf=EXPANDABLE)
    assert answer["reserved_peak_bytes"] == 60 * MIB
    assert answer["recorded"]["reserved_peak_bytes"] == 120 * MIB


def test_with_less_memory_the_cache_is_given_back():
    """60 MiB are asked for beside 60 MiB of cache, where there are 100."""
    answer = of(*GROWING, memory=100 * MIB)
    assert (answer["retries"], answer["ooms"]) == (1, 0)
    assert answer["reserved_peak_bytes"] == 60 * MIB


def test_where_it_runs_out():
    """At the third line, with 20 and 40 MiB in use: 60 more need 120."""
    answer = of(*HELD, memory=100 * MIB)
    oom = answer["oom"]
    assert answer["ooms"] == 1 and answer["reserved_peak_bytes"] == 60 * MIB
    assert (oom["file"], oom["line"], oom["function"]) == ("train.py", 3, "train")
    assert oom["requested_bytes"] == 60 * MIB and oom["reserved_bytes"] == 60 * MIB
    assert oom["least_memory_bytes"] == 120 * MIB
    assert oom["missing_bytes"] == 20 * MIB
    assert of(*HELD, memory=120 * MIB)["oom"] is None


def test_a_limit_that_shows_in_the_recording():
    """60 MiB were refused with 60 reserved, though the device had them: so the process was
    allowed from 60 to below 120 MiB."""
    steps = [*HELD[:2], ("oom", 60, 1000)]
    answer = of(*steps)
    assert mismatches(answer) == [0, 0, 0]
    assert answer["ooms"] == 1 and answer["oom"]["line"] == 3
    assert answer["memory_bytes"] == 60 * MIB
    assert answer["oom"]["missing_bytes"] == 60 * MIB
    assert answer["inexact_because"] == [
        "the limit on memory is known between two bounds only"
    ]
    more = of(*steps, memory=200 * MIB)
    assert more["ooms"] == 0 and more["reserved_peak_bytes"] == 120 * MIB
    assert more["inexact_because"] == [
        "a request failed: what would have come after it is not recorded"
    ]


def test_a_device_that_was_full():
    """60 MiB were refused with 60 reserved and 10 left: there were 70."""
    answer = of(*HELD[:2], ("oom", 60, 10))
    assert answer["exact"] and answer["ooms"] == 1
    assert answer["memory_bytes"] == 70 * MIB
    assert answer["oom"]["missing_bytes"] == 50 * MIB


def test_what_the_program_gives_back_stays_given_back():
    """As it empties the cache, 20 MiB are not there beside the 40."""
    steps = [("alloc", "a", 20), ("free", "a"), ("empty",), ("alloc", "b", 40)]
    assert mismatches(of(*steps)) == [0, 0, 0]
    for conf in (None, "", EXPANDABLE):
        assert of(*steps, conf=conf)["reserved_peak_bytes"] == 40 * MIB


def test_a_free_that_waits_waits_elsewhere_too():
    """b cannot take what a has not given up yet, under no settings; c can."""
    steps = [
        ("alloc", "a", 20), ("request", "a"), ("alloc", "b", 20), ("complete", "a"),
        ("alloc", "c", 20),
    ]
    for conf in (None, "", EXPANDABLE):
        answer = of(*steps, conf=conf)
        assert answer["reserved_peak_bytes"] == 40 * MIB
        assert answer["active_peak_bytes"] == 40 * MIB
    waited = "frees waited for other streams, as long as in the recording"
    assert waited in answer["inexact_because"]


def test_memory_that_runs_short_ends_the_wait():
    """As all streams are waited for, the 20 MiB that wait are given back, and 40 fit."""
    steps = [
        ("alloc", "a", 20), ("request", "a"), ("alloc", "b", 40), ("complete", "a"),
        ("alloc", "c", 20),
    ]
    answer = of(*steps, memory=60 * MIB)
    assert (answer["ooms"], answer["retries"]) == (0, 0)
    answer = of(*steps, memory=50 * MIB)
    assert (answer["ooms"], answer["retries"]) == (1, 2)
    assert answer["oom"]["line"] == 5


# ---- What is refused ----


def test_settings_that_torch_would_not_take():
    made = recording(run(*HELD))
    with pytest.raises(ValueError, match=r"conf: .*no_such_key"):
        made.replay(0, conf="no_such_key:1")
    with pytest.raises(ValueError, match=r"conf: .*how much memory"):
        made.replay(0, conf="per_process_memory_fraction:0.5")
    for memory in (0, 1 << 62):
        with pytest.raises(ValueError, match="memory is from 1 byte"):
            made.replay(0, memory=memory)
    with pytest.raises(IndexError, match="the recording has 1 devices, no 1"):
        made.replay(1)


def test_a_device_without_a_cache(tmp_path, capsys):
    file = tmp_path / "cpu.pickle"
    file.write_bytes(pickle.dumps(ranks_snapshot(0, sizes=[MIB]), protocol=4))
    with pytest.raises(memlab.Error, match=r"cpu\.pickle: .*keeps no cache"):
        memlab.replay(file)
    assert main.main(["replay", str(file)]) == 1
    assert "keeps no cache" in capsys.readouterr().err


HOSTILE = [0, 1, 511, 512, 1 << 20, (1 << 20) + 512, 20 << 20, 1 << 40, 1 << 56, 1 << 60,
           (1 << 61) - 512, 1 << 61, (1 << 63) - 1]  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2.oom", "streams.expandable"])
def test_what_no_allocator_does(name):
    """Whatever a file says, the answer is an answer, or that it makes no sense."""
    original, _ = real(name)
    for seed in range(int(os.environ.get("MEMLAB_HOSTILE", "12"))):
        rng = random.Random(seed)
        snapshot = copy.deepcopy({**original, "device_traces": []})
        events = [dict(e, frames=[]) for e in original["device_traces"][0]]
        events = events[rng.randrange(len(events)) :][: rng.randrange(2, 400)]
        things = [*events, *snapshot["segments"]] * 2
        things += [block for s in snapshot["segments"] for block in s["blocks"]]
        for _ in range(rng.randrange(1, 30)):
            thing = rng.choice(things)
            key = rng.choice([k for k, v in thing.items() if type(v) is int])
            thing[key] = rng.choice([*HOSTILE, thing[key] + 512, thing[key] * 2])
            if "action" in thing and rng.random() < 0.5:
                thing["action"] = rng.choice(events)["action"]
        rng.shuffle(snapshot["segments"])
        snapshot["device_traces"] = [events]
        try:
            made = recording(snapshot)
        except memlab.SnapshotError:
            continue
        for options in ({}, {"conf": ""}, {"conf": EXPANDABLE, "memory": 1 << 30}):
            with contextlib.suppress(memlab.SnapshotError):
                answer = made.replay(0, **options)
                assert answer["events"] <= len(events)
                low, high = answer["reserved_peak_range_bytes"]
                assert low <= answer["reserved_peak_bytes"] <= high


# ---- From Python and the command line ----


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(run(*HELD), protocol=4))
    return path


def test_the_answer(file):
    answer = memlab.replay(file, memory="100MiB")
    check(answer, _answers.Replay)
    assert answer["memory_bytes"] == answer["devices"][0]["memory_bytes"] == 100 * MIB
    assert answer["devices"][0]["name"] == "cuda:0"
    assert answer == memlab.replay(load.read_recording(file), None, 100 * MIB)
    check(memlab.replay(file), _answers.Replay)


def test_the_command(file, capsys):
    assert main.main(["replay", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "every address, segment and final block right" in printed
    assert "the same" in printed and "Not exact" not in printed
    assert main.main(["replay", str(file), "--memory", "100MiB", "--conf", ""]) == 0
    printed = capsys.readouterr().out
    assert "Runs out of memory: 60.0 MiB requested at train.py:3 train" in printed
    assert "It needs at least 120 MiB, 20.0 MiB more than there is." in printed
    assert main.main(["replay", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == memlab.replay(file)


def test_the_command_says_what_is_wrong(file, capsys):
    assert main.main(["replay", str(file), "--conf", "oops:1"]) == 1
    assert "does not know 'oops'" in capsys.readouterr().err
    assert main.main(["replay", str(file), "--device", "3"]) == 1
    assert "run.pickle: the recording has no memory of device 3" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main.main(["replay", str(file), "--memory", "much"])
    assert left.value.code == 2


def test_names_of_a_stranger_are_escaped(capsys, tmp_path):
    snapshot = run(*HELD)
    for event in snapshot["device_traces"][0]:
        event["frames"][0]["filename"] = "\x1b[31mtrain.py"
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    assert main.main(["replay", str(path), "--memory", "100MiB"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\\x1b[31mtrain.py:3" in printed


def test_ranks_of_one_file(tmp_path):
    """Each by its own events alone."""
    for rank, steps in enumerate((HELD, GROWING)):
        made = run(*steps)
        made["memlab"] = {
            **ranks_snapshot(rank, sizes=[])["memlab"], "has_segments": True,
        }
        (tmp_path / f"rank{rank}.pickle").write_bytes(pickle.dumps(made, protocol=4))
    merged = tmp_path / "merged.pickle"
    assert main.main(["merge", str(tmp_path), "-o", str(merged)]) == 0
    answer = replay.replay(merged, EXPANDABLE)
    peaks = [device["reserved_peak_bytes"] for device in answer["devices"]]
    assert peaks == [120 * MIB, 60 * MIB]
    assert [device["device"] for device in answer["devices"]] == [0, 1]
    (one,) = memlab.replay(merged, EXPANDABLE, rank=1)["devices"]
    assert one == answer["devices"][1]


# ---- Pools that end ----

ENDED = {
    "a graph's, with the cache": (
        [("alloc", "p", 20), ("free", "p"), ("empty",), ("alloc", "a", 20)], 20,
    ),
    "a MemPool's, and then the cache": (
        [
            ("alloc", "p", 20), ("alloc", "a", 40), ("free", "a"), ("free", "p"),
            ("empty",), ("alloc", "b", 30),
        ], 60,
    ),
    "for want of memory": (
        [
            ("alloc", "p", 20), ("alloc", "a", 40), ("free", "p"), ("oom", 60, 30),
            ("alloc", "b", 30),
        ], 70,
    ),
    "and begins again": (
        [
            ("alloc", "p", 20), ("free", "p"), ("empty",), ("alloc", "a", 30),
            ("alloc", "p", 20), ("free", "p"), ("empty",), ("alloc", "b", 10),
        ], 50,
    ),
}


@pytest.mark.parametrize("what", ENDED)
def test_memory_of_a_pool_that_ended_goes_back(what):
    steps, most = ENDED[what]
    lines = [line for line, step in enumerate(steps, 1) if step[:2] == ("alloc", "p")]
    answer = in_pool(run(*steps), lines).replay(0)
    assert mismatches(answer) == [0, 0, 0]
    assert answer["reserved_peak_bytes"] == most * MIB
    assert answer["recorded"]["reserved_peak_bytes"] == most * MIB


def test_a_pool_that_is_used_keeps_its_memory_where_the_cache_goes():
    steps = [
        ("alloc", "p", 20), ("free", "p"), ("alloc", "a", 40), ("free", "a"),
        ("alloc", "b", 60),
    ]
    source = in_pool(run(*steps), [1])
    answer = source.replay(0, memory=100 * MIB)
    assert (answer["retries"], answer["ooms"]) == (1, 0)
    assert answer["at_reserved_peak"]["reserved_bytes"] == 80 * MIB
    assert source.replay(0, memory=78 * MIB)["ooms"] == 1


@pytest.mark.parametrize("threshold", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_threshold_that_torch_would_not_take_is_none(threshold):
    snapshot = run(*GROWING)
    snapshot["allocator_settings"] = {"garbage_collection_threshold": threshold}
    assert recording(snapshot).replay(0, memory=100 * MIB)["reserved_peak_bytes"] > 0


def test_more_segments_than_any_device_has():
    """Each stream has one; to find room for a million of them would take for ever."""
    events = []
    for i in range((1 << 17) + 1):
        events.append({"action": "alloc", "addr": (i + 1) << 20, "size": 512, "stream": i})
    source = recording({"segments": [], "device_traces": [events]})
    with pytest.raises(memlab.SnapshotError, match="limit"):
        source.replay(0)


def test_text_says_which_column_is_which():
    parts = replay.sections(memlab.replay(recording(run(*HELD)), conf=""))[0]
    text = "\n".join(line for part in parts for line in _report_parts._plain(part))
    assert text.splitlines()[1].split() == ["peak", "of", "recorded", "replayed", "change"]


# ---- A limit as a fraction of the memory ----

# Each block is a segment of its own; a collection takes back what was used longest ago.
CACHING = """
import json, sys, torch, memlab
fraction = float(sys.argv[1])
total = torch.cuda.mem_get_info()[1]
if fraction:
    torch.cuda.set_per_process_memory_fraction(fraction)
torch.cuda.memory._set_allocator_settings("garbage_collection_threshold:0.6")
with memlab.MemorySnapshot() as snapshot:
    for mib in range(20, 120, 4):
        x = torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
        del x
stats = torch.cuda.memory_stats()
replayed = None
if not fraction:
    replayed = {
        f: memlab.replay(
            snapshot.data(), "garbage_collection_threshold:0.6", memory_fraction=f
        )["devices"][0]
        for f in map(float, sys.argv[2:])
    }
print(json.dumps([total, stats["reserved_bytes.all.peak"], stats["num_ooms"], replayed]))
"""
FRACTIONS = ("0.002", "0.004", "0.008", "0.5")


@pytest.mark.cuda
def test_a_fraction_is_as_torch_keeps_it(phantom_run):
    total, free, _, replayed = json.loads(
        phantom_run(CACHING, "0", *FRACTIONS, warm=False).stdout
    )
    peaks = set()
    for fraction in FRACTIONS:
        _, peak, ooms, _ = json.loads(phantom_run(CACHING, fraction, warm=False).stdout)
        assert replayed[fraction]["reserved_peak_bytes"] == peak
        assert (replayed[fraction]["ooms"], ooms) == (0, 0)
        assert replayed[fraction]["memory_bytes"] == int(float(fraction) * total)
        peaks.add(peak)
    # The smaller ones collect, each something else; the largest does not.
    assert len(peaks) == len(FRACTIONS) and max(peaks) == free


def test_a_fraction_of_the_memory_that_is_given():
    made = recording(run(*HELD))
    of_memory = made.replay(0, memory=1 << 30, memory_fraction=0.25)
    assert of_memory["memory_bytes"] == 1 << 28
    said = made.replay(0, memory=1 << 30, conf="per_process_memory_fraction:0.25")
    assert of_memory == said


def test_a_fraction_needs_a_memory_and_is_one():
    made = recording(run(*HELD))
    with pytest.raises(ValueError, match="of how much"):
        made.replay(0, memory_fraction=0.5)
    for fraction in (0, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            made.replay(0, memory=1 << 30, memory_fraction=fraction)


def test_a_fraction_on_the_command_line(tmp_path, capsys):
    file = tmp_path / "held.pickle"
    file.write_bytes(pickle.dumps(run(*HELD)))
    words = ["replay", str(file), "--memory", "1GiB", "--memory-fraction", "0.25", "--json"]
    assert main.main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["memory_fraction"] == 0.25
    assert answer["devices"][0]["memory_bytes"] == 1 << 28
