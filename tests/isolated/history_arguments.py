"""The further arguments of torch's recorder, beside torch's own: which events are skipped,
the older signature, traces of FX, pictures of the memory now and of a profile."""

import inspect
import os
import pickle
import warnings

import torch

import memlab
from memlab import viz

theirs = torch.cuda.memory
SKIPPED = [
    ["free_requested"],
    ["alloc"],
    ("free_completed", "segment_alloc"),
    ["segment_free", "oom", "snapshot", "segment_map", "segment_unmap"],
    [],
    None,
]


def work():
    for size in 100, 1 << 20, 1 << 24:
        x = torch.empty(size, device="cuda")
        del x
    torch.cuda.empty_cache()
    try:
        torch.empty(1 << 45, device="cuda")
    except torch.OutOfMemoryError:
        pass
    return torch.empty(5000, device="cuda")


def actions(snapshot):
    # memlab's own look at the memory is in torch's trace.
    return [e["action"] for e in snapshot["device_traces"][0] if e["action"] != "snapshot"]


def check_skip_actions():
    knows = "skip_actions" in inspect.signature(theirs._record_memory_history).parameters
    for names in SKIPPED:
        memlab._record_memory_history(skip_actions=names)
        if knows:
            theirs._record_memory_history(stacks="python", skip_actions=names)
        kept = work()
        ours = memlab._snapshot()
        memlab._dump_snapshot("ours.pickle")
        with open("ours.pickle", "rb") as file:
            assert actions(pickle.load(file)) == actions(ours)
        assert not set(actions(ours)) & set(names or ())
        if knows:
            found = theirs._snapshot()
            theirs._record_memory_history(None)
            assert actions(ours) == actions(found), (names, actions(ours), actions(found))
        memlab._record_memory_history(None)
        del kept
    # What is recorded next has all again, and memlab's own file always has.
    memlab._record_memory_history(skip_actions=["alloc"])
    kept = work()
    memlab._dump_snapshot("extras.pickle", extras=True)
    assert "alloc" in actions(memlab.load("extras.pickle"))
    memlab._record_memory_history(None)
    memlab._record_memory_history()
    kept = work()
    assert "alloc" in actions(memlab._snapshot())
    memlab._record_memory_history(None)
    del kept


def check_errors():
    for names, kind in (["nope"], RuntimeError), ("alloc", TypeError), ([1], TypeError):
        try:
            memlab._record_memory_history(skip_actions=names)
        except kind as error:
            if kind is RuntimeError:
                # torch's own words.
                assert str(error) == "Unknown TraceEntry action: nope"
        else:
            raise AssertionError(f"{names} was taken")


def check_older_signature():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memlab._record_memory_history(
            True, True, 1000, True, None, False, True, True, True, ["free_requested"]
        )
    assert "compile_context is not recorded" in str(caught[0].message)
    kept = work()
    found = actions(memlab._snapshot())
    assert "alloc" in found and "free_requested" not in found
    memlab._record_memory_history(False)
    for record in memlab.record_memory_history, memlab._record_memory_history:
        record(global_record_annotations=True, clear_history=True)
        with torch.profiler.record_function("mine"):
            torch.empty(1, device="cuda")
        assert any(
            item["name"] == "mine" for item in memlab._snapshot()["external_annotations"]
        )
        record(None)
    del kept


def check_fx_traces():
    memlab._record_memory_history()
    kept = work()
    if hasattr(theirs, "_augment_memory_snapshot_stack_traces"):
        plain, more = memlab._snapshot(), memlab._snapshot(augment_with_fx_traces=True)
        assert actions(plain) == actions(more)
        memlab._dump_snapshot("fx.pickle", True)
        with open("fx.pickle", "rb") as file:
            assert actions(pickle.load(file)) == actions(plain)
        try:
            memlab._dump_snapshot("fx.pickle", True, extras=True)
        except ValueError as error:
            assert "do not go together" in str(error)
    memlab._record_memory_history(None)
    del kept


def check_pictures():
    memlab._record_memory_history()
    kept = work()
    for save, draw in (
        (memlab._save_segment_usage, viz.segments),
        (memlab._save_memory_usage, viz.memory),
    ):
        taken = memlab._snapshot()
        save("usage.svg", taken)
        with open("usage.svg") as file:
            assert file.read() == draw(taken)
        save()
        with open("output.svg") as file:
            assert file.read().startswith("<?xml")
        os.remove("output.svg")
    memlab._record_memory_history(None)
    del kept
    needed = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with torch.profiler.profile(**needed) as profile:
        x = torch.ones(1000, 1000, device="cuda")
        (x @ x).sum()
    page = viz.profile_plot(profile)
    assert page.startswith("<!DOCTYPE html>")
    assert page == viz.trace_plot(torch.cuda._memory_viz._profile_to_snapshot(profile))


if __name__ == "__main__":
    torch.ones(1, device="cuda")
    check_skip_actions()
    check_errors()
    check_older_signature()
    check_fx_traces()
    check_pictures()
