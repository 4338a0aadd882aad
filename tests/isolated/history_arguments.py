"""The further arguments of torch's recorder, beside torch's own: which events are skipped,
regions of torch.compile, pinned memory, the older signature, traces of FX, pictures of the
memory now and of a profile."""

import inspect
import os
import pickle
from itertools import product

import torch
import torch.utils.checkpoint

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
    for names, entries in product(SKIPPED, (7, 1, 1000)):
        memlab._record_memory_history(skip_actions=names, max_entries=entries)
        if knows:
            theirs._record_memory_history(
                stacks="python", skip_actions=names, max_entries=entries
            )
        kept = work()
        ours = memlab._snapshot()
        if entries == 1000:
            memlab._dump_snapshot("ours.pickle")
            with open("ours.pickle", "rb") as file:
                assert actions(pickle.load(file)) == actions(ours)
        assert not set(actions(ours)) & set(names or ())
        if knows:
            found = theirs._snapshot()
            theirs._record_memory_history(None)
            # Each look at the memory may take the place of an entry.
            assert len(found["device_traces"][0]) <= entries
            shown = [trace["device_traces"][0] for trace in (ours, found)]
            assert len(shown[0]) == len(shown[1]) or entries == 1000, (names, entries)
            both = len(actions(found))
            assert both >= min(entries, len(actions(ours))) - 2
            assert actions(ours)[-both or entries :] == actions(found), (names, entries)
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
    memlab._record_memory_history(
        True, True, 1000, True, None, False, True, True, True, ["free_requested"]
    )
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


def check_compile_context():
    @torch.compile(backend="eager")
    def step(x):
        y = x + 1
        torch._dynamo.graph_break()
        return step_within(y) * 2

    def step_within(x):
        return x * 3

    def regions(snapshot):
        return [e["compile_context"] for e in snapshot["device_traces"][0]
                if e["action"] == "alloc"]  # fmt: skip

    x = torch.empty(1000, device="cuda")
    memlab._record_memory_history()
    step(x)
    assert set(regions(memlab._snapshot())) == {"N/A"}
    memlab._record_memory_history(None)
    memlab._record_memory_history(compile_context=True)
    theirs._record_memory_history(stacks="python", compile_context=True)
    before = torch.empty(1000, device="cuda")
    step(x)
    after = torch.empty(1000, device="cuda")
    ours = memlab._snapshot()
    named = regions(ours)
    assert named == regions(theirs._snapshot())
    assert named[0] == named[-1] == "N/A"
    assert {name.partition(":")[0] for name in named[1:-1]} == {"Torch-Compiled Region"}
    assert len(set(named)) == 3
    memlab._dump_snapshot("compiled.pickle", extras=True)
    assert regions(memlab.load("compiled.pickle")) == named
    theirs._record_memory_history(None)
    memlab._record_memory_history(None)
    memlab._record_memory_history()
    step(x)
    assert set(regions(memlab._snapshot())) == {"N/A"}
    memlab._record_memory_history(None)
    del before, after


def pin():
    return torch.empty(10000, pin_memory=True)


def check_pinned_memory():
    parameters = inspect.signature(theirs._record_memory_history).parameters
    if "record_pinned_host_memory" not in parameters:
        try:
            memlab._record_memory_history(record_pinned_host_memory=True)
        except memlab.Error as error:
            assert "does not record pinned host memory" in str(error)
        else:
            raise AssertionError("record_pinned_host_memory was taken")
        return

    def both(traces):
        return [(e["action"], e["addr"], e["size"], e["time_us"]) for e in traces]

    theirs._record_memory_history(stacks="python")
    memlab._record_memory_history(record_pinned_host_memory=True, stacks="python")
    assert torch._C._cuda_isHistoryEnabled()
    x, y = pin(), torch.empty(10, device="cuda")
    kept = pin()
    del x
    ours, found = memlab._snapshot(), theirs._snapshot()
    assert both(ours["host_traces"]) == both(found["host_traces"])
    assert ours["host_segments"] == found["host_segments"]
    told = [e["action"] for e in ours["host_traces"] if e["action"] != "segment_alloc"]
    assert told == ["alloc", "alloc", "free_requested", "free_completed"], told
    assert ours["host_traces"][0]["frames"][0]["name"] == "pin"
    assert actions(ours) == actions(found)
    memlab._dump_snapshot("pinned.pickle")
    with open("pinned.pickle", "rb") as file:
        assert pickle.load(file)["host_traces"] == ours["host_traces"]
    memlab._record_memory_history(None)
    # torch's own recorder of the GPU goes on, that of pinned memory has ended.
    assert torch._C._cuda_isHistoryEnabled()
    more = pin()
    assert theirs._snapshot()["host_traces"] == []
    assert memlab._snapshot()["host_traces"] == []
    # Where the program has it on, it stays on.
    theirs._record_memory_history(record_pinned_host_memory=True, stacks="python")
    memlab._record_memory_history(record_pinned_host_memory=True, record_cuda=False)
    more = pin(), torch.empty(10, device="cuda")
    ours = memlab._snapshot()
    assert len(ours["host_traces"]) > 0 and actions(ours) == []
    memlab._record_memory_history(None)
    count = len(theirs._snapshot()["host_traces"])
    more += (pin(),)
    assert len(theirs._snapshot()["host_traces"]) > count
    theirs._record_memory_history(None)
    try:
        memlab._record_memory_history(None, record_pinned_host_memory=True)
    except RuntimeError as error:
        # torch's own words.
        assert "requires memory history recording to be enabled" in str(error)
    del kept, more, y


def check_annotations():
    """Notes on a tensor made earlier, and structured metadata, one recorder at a time."""
    if not hasattr(theirs, "_annotate_tensor"):
        return

    def told(recorder):
        recorder._record_memory_history(stacks="python")
        x = torch.empty(100, 100, device="cuda")
        theirs._annotate_tensor(x[3:], "a view")
        theirs._annotate_tensor(x, "again")
        theirs._set_memory_metadata({"phase": "b"})
        y = torch.empty(7, device="cuda")
        theirs._set_memory_metadata("")
        found = recorder._snapshot()["device_traces"][0]
        recorder._record_memory_history(None)
        recorder._record_memory_history(None, clear_history=True)
        del x, y
        return [
            (e["action"], e["size"], e["user_metadata"], [f["name"] for f in e["frames"]])
            for e in found
            if e["action"] in ("alloc", "annotate")
        ]

    ours = told(memlab)
    assert [e[:3] for e in ours] == [
        ("alloc", 40000, ""),
        ("annotate", 40000, "a view"),
        ("annotate", 40000, "again"),
        ("alloc", 28, '{"phase":"b"}'),
    ], ours
    assert ours == told(theirs)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x + torch.ones_like(x)


def deep(count, x):
    return deeper(count - 1, x) if count else torch.relu(x * 2)


def deeper(count, x):
    # Repeated lines would be told as one.
    return deep(count, x)


def check_long_forward_frames():
    """Of a traceback of more than 32 KiB both ends are told, and how many entries are not."""
    x = torch.ones(1000, device="cuda", requires_grad=True)
    memlab._record_memory_history(stacks="python")
    with torch.autograd.detect_anomaly(check_nan=False):
        y = deep(400, x)
    y.sum().backward()
    events = memlab._snapshot()["device_traces"][0]
    (long,) = {tuple(e["forward_frames"]) for e in events
               if "torch.relu" in e.get("forward_frames", ("",))[-1]}  # fmt: skip
    memlab._record_memory_history(enabled=None)
    (at,) = [i for i, entry in enumerate(long) if entry.startswith("<")]
    number, words = long[at].removeprefix("<").split(" ", 1)
    assert words == "frames left out>"
    callers = next(i for i, entry in enumerate(long) if "in check_long_forward_frames" in entry)
    # The frames of deep() and deeper(), and those around.
    assert int(number) + len(long) - 1 == callers + 1 + 801, (number, len(long))
    assert 24_000 < sum(len(entry) + 1 for entry in long) <= 32768


def check_forward_frames():
    """Under detect_anomaly both recorders tell the same forward of each event and block."""
    memlab._record_memory_history(stacks="python")
    theirs._record_memory_history(stacks="python")
    with_file = memlab.MemorySnapshot(file="forward.mlab").start()
    x = torch.ones(100, 1000, device="cuda", requires_grad=True)
    kept = torch.ones(100, 1000, device="cuda", requires_grad=True)
    (kept * 2).sum().backward()
    with torch.autograd.detect_anomaly(check_nan=False):
        # More than ASCII, which is read otherwise: ä漢😀
        y = Scaled.apply(x * 2)  # ä漢😀
        y = torch.utils.checkpoint.checkpoint(torch.relu, y, use_reentrant=False)
    y.sum().backward()
    with_file.stop()
    ours, found = memlab._snapshot(), theirs._snapshot()

    def told(events):
        return [(e["action"], e["addr"], e.get("forward_frames")) for e in events
                if e["action"] != "snapshot"]  # fmt: skip

    def blocks(snapshot):
        return sorted(
            (block["address"], block.get("forward_frames") or [])
            for segment in snapshot["segments"]
            for block in (*segment["blocks"], segment)
            if block.get("state", "active_allocated") == "active_allocated"
        )

    told_by_us = told(ours["device_traces"][0])
    if any("forward_frames" in e for e in found["device_traces"][0]):  # torch 2.11 or newer
        assert told_by_us == told(found["device_traces"][0])
        assert blocks(ours) == blocks(found)
    tracebacks = {tuple(frames) for _, _, frames in told_by_us if frames}
    assert any("Scaled.apply(x * 2)" in entry for frames in tracebacks for entry in frames)
    assert all(entry.startswith("  File ") for frames in tracebacks for entry in frames)
    assert any(frames for _, frames in blocks(ours))
    # Three ways through files.
    assert told(memlab.load("forward.mlab")["device_traces"][0]) == told_by_us
    memlab._dump_snapshot("forward.pickle")
    with open("forward.pickle", "rb") as file:
        assert told(pickle.load(file)["device_traces"][0]) == told_by_us
    memlab._dump_snapshot("extras.pickle", extras=True)
    assert told(memlab.load("extras.pickle")["device_traces"][0]) == told_by_us
    theirs._record_memory_history(None)
    memlab._record_memory_history(None)


def check_allocation_traceback():
    knows = hasattr(theirs, "_allocation_traceback")
    before = torch.empty(100, 100, device="cuda")
    assert memlab._allocation_traceback(before.data_ptr()) is None
    memlab._record_memory_history(stacks="python")
    if knows:
        theirs._record_memory_history(stacks="python")
    x = work()
    found = memlab._allocation_traceback(x.data_ptr())
    assert found[0]["name"] == "work"
    assert not knows or found == theirs._allocation_traceback(x.data_ptr())
    for address in x.data_ptr() + 512, before.data_ptr(), 0:
        assert memlab._allocation_traceback(address) is None
        assert not knows or theirs._allocation_traceback(address) is None
    if knows:
        theirs._record_memory_history(None)
    address = x.data_ptr()
    del x
    assert memlab._allocation_traceback(address) is None
    memlab._record_memory_history(None)


def check_without_traces():
    """The blocks, their states and stacks are those of the whole snapshot."""
    for options in {"stacks": "python"}, {}, {"context": None}, {"device": 0}:
        memlab._record_memory_history(**options)
        kept = [work() for _ in range(3)]
        del kept[1]
        whole, now = memlab._snapshot(), memlab._snapshot(include_traces=False)
        assert now.keys() == whole.keys() and now["segments"] == whole["segments"]
        assert len(whole["device_traces"][0]) >= 4
        assert len(now["device_traces"]) == len(whole["device_traces"])
        assert not any(now["device_traces"])
        memlab._record_memory_history(None)
    assert memlab._snapshot(include_traces=False)["segments"] == memlab._snapshot()["segments"]


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
    check_compile_context()
    check_pinned_memory()
    check_annotations()
    check_forward_frames()
    check_long_forward_frames()
    check_allocation_traceback()
    check_without_traces()
    check_fx_traces()
    check_pictures()
