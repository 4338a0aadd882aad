"""Last uses in one step of several: what is known agrees with a recording that follows all,
what is not is unknown or, by explain, told as an estimate."""

import pickle

import pytest

import memlab
from memlab._files.load import read_recording

# One argument: in one of how many steps uses are followed; the second: of how many.  Each
# step replaces the batch of the one before, and keeps an output of every fifth for good.
PROGRAM = """
import sys
import torch
import memlab
from torch import nn

every, steps = map(int, sys.argv[1:3])
model = nn.Sequential(nn.Linear(2048, 64), nn.ReLU(), nn.Linear(64, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
last, kept = None, []
with memlab.MemorySnapshot(uses=every, file="it.mlab") as snapshot:
    for step in range(steps):
        batch = torch.zeros(1024, 2048, device="cuda")  # replaced
        optimizer.zero_grad()
        out = model(batch)
        out.square().sum().backward()
        optimizer.step()
        if step % 5 == 0:
            kept.append(out.detach())
        last = batch
        del batch, out
snapshot.save("it.pickle")
"""
FIRST, TURN = 4, 3


@pytest.fixture
def ran(phantom_run, tmp_path):
    """Runs the program; the events of its device with the memlab key's columns."""

    def run(every, steps):
        phantom_run(PROGRAM, every, steps)
        return columns(tmp_path / "it.pickle")

    return run


def columns(path):
    snapshot = pickle.loads(path.read_bytes())
    device, notes = snapshot["memlab"]["devices"][0], snapshot["memlab"]["notes"]
    ends = [t for kind, t in zip(notes["kind"], notes["time"], strict=True) if kind == "step"]
    frees, born, step = [], {}, 0
    for i, event in enumerate(snapshot["device_traces"][0]):
        time = event["time_us"] * 1000 + device["time"][i]
        while step < len(ends) and ends[step] <= time:
            step += 1
        if event["action"] == "alloc":
            born[event["addr"]] = step
        elif event["action"] == "free_requested":
            idle = device["unused"][i]
            frees.append((event["size"], born.get(event["addr"]), step, idle))
    return {
        "frees": frees,
        "sampled": device.get("uses_sampled", False),
        "live": len(device.get("uses", {"addr": []})["addr"]),
    }


def is_followed(step, every):
    return step < FIRST or step % (TURN * every) < TURN


@pytest.mark.cuda
def test_known_uses_are_those_of_a_recording_that_follows_all(ran):
    whole, some = ran(1, 30), ran(4, 30)
    assert not whole["sampled"] and some["sampled"]
    assert [free[:3] for free in whole["frees"]] == [free[:3] for free in some["frees"]]
    in_turns = 0
    for (_, birth, step, idle), (*_, told) in zip(whole["frees"], some["frees"], strict=True):
        if is_followed(step, 4) and birth is not None and is_followed(birth, 4):
            # A block of the same turn: the step before it is followed, too.
            assert told == idle
            in_turns += told != 0
        elif not is_followed(step, 4):
            # Used in a turn or unseen: no whole turn without a use has passed.
            assert told == 0
    assert in_turns > 50


@pytest.mark.cuda
@pytest.mark.parametrize("every", [4, 8])
def test_explain_infers_the_others(ran, phantom_run, tmp_path, every):
    line = PROGRAM.splitlines().index(next(s for s in PROGRAM.splitlines() if "# replaced" in s))
    advice = {}
    for n in (1, every):
        ran(n, 40)
        explained = memlab.explain(tmp_path / "it.mlab")["devices"][0]
        assert explained["uses_known"]
        advice[n] = next(item for item in explained["advice"]
                         if item["kind"] == "late_frees" and item["line"] == line + 1)
    # The batch of the step before: 8 MiB, of 39 steps.
    for item in advice.values():
        assert item["allocated_saving_bytes"] == 8 << 20
        assert item["count"] == 39
    assert advice[1]["exact"] and not advice[every]["exact"]


@pytest.mark.cuda
def test_what_steps_leave_is_told_with_some_uses_too(ran, tmp_path):
    held = {}
    for every in (1, 4):
        ran(every, 40)
        explained = memlab.explain(tmp_path / "it.mlab")["devices"][0]
        item = next(item for item in explained["advice"] if item["module"] == "Sequential.2")
        assert item["kind"] == "steps_kept" and item["exact"] == (every == 1)
        held[every] = item["bytes"] // (4 << 20)
    # At the peak, in the backward pass of step 36 or later: the outputs of the steps 0, 5 ...
    # 35.  Where some steps are followed, each ends with its step, and not after its last use.
    assert held == {1: 8, 4: 8}


@pytest.mark.cuda
def test_the_file_and_the_pickle_tell_that_some_steps_were_followed(ran, tmp_path):
    kept = ran(4, 20)
    again = tmp_path / "again.pickle"
    read_recording(tmp_path / "it.mlab").write_pickle(str(again), True)
    assert columns(again) == kept
    # Optional: a reader that does not know it still reads the file.
    assert (tmp_path / "it.mlab").read_bytes()[24] & 1
    assert ran(1, 5)["sampled"] is False
    assert not (tmp_path / "it.mlab").read_bytes()[24] & 1


@pytest.mark.cuda
def test_without_steps_all_is_followed(phantom_run, tmp_path):
    phantom_run("""
import torch, memlab
torch.zeros(1, device="cuda")
with memlab.MemorySnapshot(uses=8) as snapshot:
    for _ in range(40):
        torch.zeros(1 << 20, device="cuda").add_(1)
snapshot.save("it.pickle")
""")
    frees = columns(tmp_path / "it.pickle")["frees"]
    assert len(frees) == 40 and all(idle for *_, idle in frees)


@pytest.mark.parametrize("wrong", [-1, 1.5, "8"])
def test_refuses_what_is_no_number_of_steps(wrong):
    with pytest.raises(ValueError, match="uses must be"):
        memlab.MemorySnapshot(uses=wrong)
