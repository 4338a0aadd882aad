"""memlab explain: what it says of a peak, and that what it promises comes true."""

import json
import pickle
import random
import re
from pathlib import Path

import pytest
from answer_shapes import check
from rank_files import frames

import memlab
from memlab import _answers, _core
from memlab._cli import main
from memlab._lab import explain as _explain
from memlab._report import advice_words, parts

MIB = 1 << 20
BASE = 1 << 40
PROGRAM = Path(__file__).parents[1] / "programs" / "explained.py"


class Run:
    """A device's events by hand; sizes in MiB, each segment 1 GiB behind the last."""

    def __init__(self, file="/home/a/train.py"):
        self.file = file
        self.events = []
        self.segments = {}  # address: MiB, blocks in use by address

    def event(self, action, addr, size, line=0):
        places = [(self.file, line, "train")] if line else []
        self.events.append(
            {
                "action": action,
                "addr": addr,
                "size": size * MIB,
                "stream": 0,
                "time_us": len(self.events),
                "frames": frames(*places),
            }
        )

    def segment(self, size):
        addr = BASE + (len(self.segments) << 30)
        self.segments[addr] = size, {}
        self.event("segment_alloc", addr, size)
        return addr

    def alloc(self, addr, size, line):
        """At the start of a segment that is free."""
        self.segments[addr][1][addr] = size
        self.event("alloc", addr, size, line)

    def free(self, addr):
        size = self.segments[addr][1].pop(addr)
        self.event("free_requested", addr, size)
        self.event("free_completed", addr, size)

    def recording(self):
        made = {
            "segments": [self.at_end(addr, *of) for addr, of in self.segments.items()],
            "device_traces": [self.events],
        }
        return _core.Recording.from_bytes(pickle.dumps(made, protocol=4))

    def at_end(self, addr, size, used):
        blocks = [
            {"size": n * MIB, "requested_size": n * MIB, "address": at}
            | {"state": "active_allocated", "frames": []}
            for at, n in used.items()
        ]
        left = size - sum(used.values())
        if left:
            rest = {"size": left * MIB, "requested_size": 0, "state": "inactive"}
            blocks.append(rest | {"address": addr + (size - left) * MIB, "frames": []})
        return {
            "device": 0,
            "address": addr,
            "total_size": size * MIB,
            "allocated_size": (size - left) * MIB,
            "active_size": (size - left) * MIB,
            "requested_size": (size - left) * MIB,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }


def between(**more):
    """Five times 40 MiB come and go, and then 21 MiB come to stay, in their place."""
    run = Run(**more)
    for _ in range(5):
        addr = run.segment(40)
        run.alloc(addr, 40, line=7)
        run.free(addr)
        run.alloc(addr, 21, line=9)
    return run.recording()


def only(recording, **more):
    return memlab.explain(recording, **more)["devices"][0]


def by_kind(answer):
    return {item["kind"]: item for item in answer["advice"]}


# ---- What it consists of, and segments that are kept ----


def test_what_lies_at_the_peak():
    """Most is allocated when the last 40 MiB come: with four times 21 MiB there."""
    answer = only(between())
    assert answer["exact"]
    assert answer["peak"]["allocated_bytes"] == (40 + 4 * 21) * MIB
    assert answer["peak"]["reserved_bytes"] == answer["recorded"]["reserved_bytes"]
    assert answer["peak"]["reserved_bytes"] == 5 * 40 * MIB
    assert answer["peak"]["line"] == 7
    assert sum(part["bytes"] for part in answer["parts"]) == (40 + 4 * 21) * MIB
    # Four segments with 21 MiB in use.
    assert answer["at_reserved_peak"]["inactive_split_bytes"] == 4 * 19 * MIB


def test_a_line_whose_blocks_keep_segments():
    """Made when the first of them is, in the first segment and in three of 22 MiB, the
    four that are there when the last segment comes leave one for all that comes and goes,
    and the fifth takes its place: 40 + 3 * 22 + 40 MiB.  Of 22 MiB the last one is too
    little to be cut off."""
    answer = only(between())
    item = by_kind(answer)["fragmentation"]
    assert item["line"] == 9
    assert item["reserved_saving_bytes"] == (200 - 146) * MIB
    assert item["allocated_saving_bytes"] == -3 * MIB
    assert (item["blocks"], item["count"]) == (4, 4)
    assert item["bytes"] == 4 * 19 * MIB


def test_settings_that_free_cache():
    """An expandable segment grows by pages, here of 128 MiB, to what is allocated."""
    answer = only(between())
    item = by_kind(answer)["settings"]
    assert item["conf"] == "expandable_segments:True,large_segment_size_mb:128"
    assert item["reserved_saving_bytes"] == (200 - 128) * MIB
    assert item["allocated_saving_bytes"] == 0
    assert answer["advice"][0] == item
    assert answer["together"]["reserved_bytes"] == 128 * MIB


def test_nothing_to_change():
    run = Run()
    run.alloc(run.segment(40), 40, line=7)
    answer = only(run.recording())
    assert answer["advice"] == []
    assert answer["together"]["allocated_saving_bytes"] == 0
    text = parts.joined([], _explain.sections({"devices": [answer]}))
    assert "No saving found" in text
    assert "saves" not in text


# ---- The promises ----


@pytest.fixture(scope="module")
def answers():
    return {}


@pytest.fixture
def trained(answers, phantom_run):
    """What explained.py prints, run once."""
    if not answers:
        answers.update(json.loads(phantom_run(PROGRAM).stdout))
    return answers


def difference(trained, before, after):
    """By which the peaks of the run BEFORE are above those of AFTER."""
    return [
        trained[before]["peak"][key] - trained[after]["peak"][key]
        for key in ("allocated_bytes", "reserved_bytes")
    ]


@pytest.mark.cuda
def test_gradients_that_are_kept(trained):
    item = by_kind(trained["zeros"]["explanation"])["gradients_kept"]
    allocated, reserved = difference(trained, "zeros", "plain")
    assert allocated > 8 * MIB
    assert item["allocated_saving_bytes"] == pytest.approx(allocated, rel=0.05)
    assert item["reserved_saving_bytes"] == pytest.approx(reserved, rel=0.05)
    assert "gradients_kept" not in by_kind(trained["plain"]["explanation"])


@pytest.mark.cuda
def test_activations_that_checkpointing_drops(trained):
    item = by_kind(trained["plain"]["explanation"])["checkpoint"]
    allocated, reserved = difference(trained, "plain", "checkpointed")
    assert allocated > 64 * MIB
    assert (item["module"], item["count"]) == ("layers.*", 4)
    assert item["allocated_saving_bytes"] == pytest.approx(allocated, rel=0.05)
    assert item["reserved_saving_bytes"] == pytest.approx(reserved, rel=0.05)
    assert "checkpoint" not in by_kind(trained["checkpointed"]["explanation"])


@pytest.mark.cuda
def test_the_batch_that_fits(trained):
    """Into what the run with twice the batch took."""
    assert trained["plain"]["explanation"]["batch"] is None
    fit = trained["fit"]["explanation"]["batch"]
    assert fit["factor"] == pytest.approx(2, rel=0.05)
    assert fit["reserved_bytes"] <= fit["memory_bytes"]
    assert fit["scaling_bytes"] > 120 * MIB


@pytest.mark.cuda
def test_the_peaks_of_the_runs_are_the_recorded_ones(trained):
    for name, run in trained.items():
        peak = run["explanation"]["peak"]
        for key in ("allocated_bytes", "reserved_bytes"):
            assert peak[key] == run["peak"][key], (name, key)
        check(run["explanation"], _answers.ExplainedDevice)


@pytest.mark.cuda
def test_most_saving_comes_first_and_all_of_it_is_no_sum(trained):
    answer = trained["zeros"]["explanation"]

    def saving(item):
        return max(item["allocated_saving_bytes"], item["reserved_saving_bytes"])

    savings = [saving(item) for item in answer["advice"]]
    assert savings == sorted(savings, reverse=True)
    assert len(savings) >= 2 and min(savings) > 0
    assert savings[0] <= saving(answer["together"]) < sum(savings)


# ---- A recording that begins in the middle ----


def begun_late():
    """120 MiB that were cached before the recording began; then 60 MiB come and go."""
    run = Run()
    addr = run.segment(120)
    run.alloc(addr, 120, line=3)
    run.free(addr)
    run.events.clear()
    run.alloc(addr, 60, line=7)
    run.free(addr)
    return run.recording()


def test_a_cache_from_before_the_recording_is_named_as_such(tmp_path, capsys):
    answer = only(begun_late())
    assert answer["recorded"]["reserved_bytes"] == 120 * MIB
    assert answer["peak"]["reserved_bytes"] == 60 * MIB
    assert answer["start_cached_bytes"] == 120 * MIB
    path = tmp_path / "run.pickle"
    begun_late().write_pickle(str(path), True)
    _, out, _ = explain(capsys, path)
    said = "reserved 120 MiB. It had 120 MiB cached when the recording began; the replays begin"
    assert said in " ".join(out.split())
    assert "driver placement" not in out
    assert only(between())["start_cached_bytes"] == 0


def test_the_same_program_replays_from_the_recorded_cache():
    recording = begun_late()
    assert recording.replay(0, memory=1 << 30)["reserved_peak_bytes"] == 120 * MIB
    # Where the memory does not hold the cache, and with other settings, it begins anew.
    assert recording.replay(0, memory=100 * MIB)["reserved_peak_bytes"] == 60 * MIB
    assert recording.replay(0, conf="")["reserved_peak_bytes"] == 60 * MIB


def test_settings_are_not_praised_for_a_cache_that_they_begin_without():
    tuned = memlab.tune(begun_late())["devices"][0]
    assert tuned["best"] is None, tuned


# ---- The command ----


def explain(capsys, *argv):
    status = main.main(["explain", *map(str, argv)])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command(tmp_path, capsys):
    path = tmp_path / "run.pickle"
    between().write_pickle(str(path), True)
    status, out, err = explain(capsys, path)
    assert (status, err) == (0, "")
    assert out.startswith("Peak on cuda:0: 124 MiB allocated, 200 MiB reserved\n")
    assert max(map(len, out.splitlines())) <= 80
    assert "train.py:9 train" in out
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in out
    status, out, err = explain(capsys, path, "--json", "--memory", "1GiB")
    answer = json.loads(out)
    check(answer, _answers.Explanation)
    assert answer["memory_bytes"] == 1 << 30
    # Nothing is known to grow with the batch, and it fits as it is.
    assert answer["devices"][0]["batch"]["factor"] == 1
    status, out, err = explain(capsys, path, "--memory", "160MiB")
    assert "None: memory that does not grow with the batch exceeds 160 MiB" in out


def test_what_there_is_not(tmp_path, capsys):
    path = tmp_path / "run.pickle"
    between().write_pickle(str(path), True)
    status, out, err = explain(capsys, path, "--device", 3)
    assert (status, out) == (1, "")
    assert f"{path}: the recording has no memory of device 3: it has 0" in err
    with pytest.raises(ValueError, match="memory"):
        memlab.explain(path, memory=0)
    with pytest.raises(IndexError):
        between().explain(1)
    with pytest.raises(SystemExit) as end:
        explain(capsys, path, "--memory", "much")
    assert end.value.code == 2


def anything(seed):
    """A recording of events that no allocator would make, of any size."""
    rng = random.Random(seed)
    run, live = Run(), []
    sizes = (1, 3, 25, 1 << 20, 1 << 40, (1 << 43) - 1)
    for i in range(rng.randrange(1, 100)):
        if rng.random() < 0.5:
            addr = rng.choice((rng.randrange(1, 1 << 35) * 512, BASE + (i << 30)))
            live.append((addr, rng.choice(sizes)))
            if rng.random() < 0.8:
                run.event("segment_alloc", *live[-1], line=1)
            run.event("alloc", *live[-1], line=rng.randrange(3))
        elif live:
            run.event("free_requested", *rng.choice(live))
            run.event("free_completed", *live.pop(rng.randrange(len(live))))
        if rng.random() < 0.05:
            action = rng.choice(("oom", "segment_free", "segment_map", "segment_unmap"))
            run.event(action, rng.randrange(1 << 44), rng.choice(sizes))
    return run.recording()


def test_recordings_that_make_no_sense():
    """Whatever a file says, what is advised saves something."""
    for seed in range(60):
        answer = anything(seed).explain(0, memory=None if seed % 2 else 1 << 30)
        for item in answer["advice"]:
            saved = item["allocated_saving_bytes"], item["reserved_saving_bytes"]
            assert max(saved) > 0, (seed, item)


def test_names_cannot_steer_the_terminal(tmp_path, capsys):
    path = tmp_path / "run.pickle"
    between(file="/home/a/\x1b[2Jtrain.py").write_pickle(str(path), True)
    status, out, err = explain(capsys, path)
    assert status == 0
    assert "\x1b" not in out
    assert "\\x1b[2Jtrain.py:9" in out


def test_every_kind_has_words():
    header = Path(__file__).parents[2] / "csrc/core/lab/advice/advice_case.h"
    kinds = re.findall(r'^    XX\(\w+, "(\w+)"\)', header.read_text(), re.MULTILINE)
    assert "checkpoint" in kinds and set(kinds) == set(advice_words.WORDS)
    item = dict.fromkeys(("bytes", "blocks", "count", "allocated_saving_bytes"), 1) | {"conf": "a:b", "batch_norm": True, "garbage": False}
    item |= dict.fromkeys(("file", "module", "name", "function", "optimizer"), "x")
    item |= {"line": 1, "library_switch": "x"}
    for kind, words in advice_words.WORDS.items():
        title, sentence, change = words(item)
        assert title and sentence.endswith(".") and change, kind


def test_what_saves_little_is_counted():
    answer = only(between())
    for item in answer["advice"][1:]:
        item.update(allocated_saving_bytes=0, reserved_saving_bytes=1 << 20)
    text = parts.joined([], _explain.sections({"devices": [answer]}))
    assert "1. Other allocator settings reserve less" in text
    assert "\n2. " not in text
    assert "1 more change would save less than 1 % each." in text


def told(answer):
    return parts.joined([], _explain.sections({"devices": [answer]}))


def test_what_rises_is_said_last():
    answer = only(between())
    item = by_kind(answer)["fragmentation"]
    assert item["allocated_saving_bytes"] < 0 < item["reserved_saving_bytes"]
    assert "saves 54.0 MiB reserved, but 3.00 MiB more allocated" in told(answer)


def test_what_other_advice_of_its_kind_covers_is_counted():
    """A checkpoint of a module within one that is checkpointed saves nothing more."""
    answer = only(between())
    first = answer["advice"][0] | {"kind": "checkpoint", "module": "stages.*"}
    within = first | {"module": "stages.0.layers.*", "together": False}
    answer["advice"] = [first, within, within | {"kind": "late_frees"}]
    text = told(answer)
    assert "in stages.*\n" in text and "stages.0" not in text.split("\n2. ")[0]
    assert "2. Blocks are held after their last use" in text
    assert "\n3. " not in text
    assert "1 more change of these kinds would save nothing after them." in text


def test_temporaries_that_are_gone_at_the_peak():
    item = {"bytes": 0, "blocks": 0, "count": 0, "conf": "fused=True", "batch_norm": False}
    item |= {"optimizer": "Adam", "library_switch": ""}
    _, sentence, _ = advice_words.WORDS["optimizer_temporaries"](item)
    assert sentence.startswith("They are freed at the peak of allocated memory")
    item["count"] = 8
    _, sentence, _ = advice_words.WORDS["checkpoint"](item)
    assert sentence.startswith("Activations of 8 modules are saved") and "0 B" not in sentence


def test_a_loss_in_16_bits_is_less_exact():
    _, sentence, _ = advice_words.WORDS["logits_float32"]({"bytes": 1 << 30, "blocks": 3})
    assert "The loss is then less exact" in sentence and "stays in float32" in sentence


def test_a_snapshot_of_torch_that_ran_out_of_memory():
    """It had as much as it reserved at least; what its memory is for is estimated."""
    answer = only(Path(__file__).parents[1] / "data" / "gpt2_oom.pickle.gz")
    check(answer, _answers.ExplainedDevice)
    assert answer["failed"] and not answer["uses_known"]
    assert answer["peak"]["allocated_bytes"] > answer["recorded"]["reserved_bytes"]
    assert answer["batch"] is None
    fit = answer["make_fit"]
    assert fit["memory_bytes"] == answer["recorded"]["reserved_bytes"]
    # All modules had run: it ended in the loss that the model's own forward computes.
    assert fit["untold_because"] == [] and fit["unseen"]["modules"] == 0
    assert not fit["batch_named"] and "cannot be told exactly" in fit["batch_text"]
    text = told(answer)
    assert "The recorded run ran out of memory" in text
    assert "activation of modeling_gpt2@21.linear@697" in text
    for part in answer["parts"]:
        part |= {"category": "unknown", "reason": "no backward pass followed"}
    assert "Much of the peak is unknown" not in told(answer)
    for part in answer["parts"]:
        part["reason"] = "the recording does not say what a backward pass made"
    assert "Much of the peak is unknown, so advice is limited" in told(answer)


FRAGMENTED = """
import json, torch, memlab
mib = 1 << 18
with memlab.MemorySnapshot() as snapshot:
    whole = torch.empty(3000, mib, device="cuda")  # all of what is reserved is in use once
    del whole
    kept = torch.empty(100, mib, device="cuda")
    try:
        torch.empty(2950, mib, device="cuda")
    except torch.OutOfMemoryError:
        pass
(device,) = memlab.report(snapshot.data())["devices"]
(finding,) = [each for each in device["verdict"]["findings"] if each["kind"] == "fragmented"]
print(json.dumps([finding["bytes"] >> 20, finding["of_bytes"] >> 20]))
"""


@pytest.mark.cuda
def test_fragmentation_is_that_of_the_request_that_failed(phantom_run):
    """At the peaks nothing was unused."""
    said = phantom_run(FRAGMENTED, env={"MEMLAB_PHANTOM_MEMORY": str(4 << 30)})
    assert json.loads(said.stdout) == [2900, 3000]
