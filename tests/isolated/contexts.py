"""What each value of `enabled` and `context` keeps, beside torch's own recorder."""

import itertools
import json
import random
import sys

import both
import torch

import memlab


def thealloc():
    return torch.empty(1 << 22, device="cuda")


def thefree(held):
    held.clear()


def stop():
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)


def names(snapshot):
    """Functions that appear in the stacks of events, and in those of live memory."""
    events = {
        frame["name"]
        for trace in snapshot["device_traces"]
        for event in trace
        for frame in event.get("frames", [])
    }
    memory = {
        frame["name"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        for frame in block["frames"]
    }
    return events, memory


def check_contexts():
    for context in (None, "state", "alloc", "all"):
        both.start(context=context)
        live, freed = thealloc(), [thealloc()]
        thefree(freed)
        torch.cuda.empty_cache()
        snapshot = both.check(strictly=context in (None, "state"))
        assert len(both.actions(snapshot)) >= 4, both.actions(snapshot)
        events, memory = names(snapshot)
        assert ("thefree" in events) == (context == "all"), (context, events)
        assert ("thealloc" in events) == (context in ("alloc", "all")), (
            context,
            events,
        )
        assert ("thealloc" in memory) == (context is not None), (context, memory)
        assert names(memlab.snapshot()) == (events, memory)
        stop()
        del live
        torch.cuda.empty_cache()


def check_state_only():
    for context in (None, "state", "alloc", "all"):
        both.start(enabled="state", context=context)
        live, freed = thealloc(), [thealloc()]
        thefree(freed)
        theirs, ours = both.take()
        assert ours["segments"] == both.without_unknown(ours, theirs), context
        assert len(ours["device_traces"][0]) <= 1
        assert ("thealloc" in names(ours)[1]) == (context is not None)
        stop()
        del live
        torch.cuda.empty_cache()


def check_free_stack():
    """As torch's own test: nothing is left of what was allocated and freed."""
    for context in ("alloc", "all", "state"):
        torch.cuda.empty_cache()
        memlab.record_memory_history(context=context)
        small = [torch_alloc()]
        thefree(small)
        text = json.dumps(memlab.snapshot())
        assert ("thefree" in text) == (context == "all"), context
        assert ("torch_alloc" in text) == (context != "state"), context
        stop()


def torch_alloc():
    return torch.rand(3, 4, device="cuda")


FREES_OF_SEGMENTS = ("segment_free", "segment_unmap")


def at_once(events, at):
    """Whether the event is a free_completed that follows what asked for it."""
    before = events[at - 1] if at else {"action": None}
    return (
        events[at]["action"] == "free_completed"
        and before["action"] == "free_requested"
        and before["addr"] == events[at]["addr"]
    )


def allow(ours, theirs):
    """Puts torch's frames into OURS where with context "alloc" they may differ: torch
    forgets where a segment came from, and of a block that other streams used, and that was
    freed by the very next event, nobody knows whether an allocation found that."""
    different = 0
    for trace, other in zip(ours["device_traces"], theirs["device_traces"]):
        for at, (one, their) in enumerate(zip(trace, other)):
            may = at_once(trace, at) and one["frames"] == trace[at - 1]["frames"]
            may |= one["action"] in FREES_OF_SEGMENTS and not their.get("frames")
            if may and one.get("frames") != their.get("frames"):
                different += one["action"] == "free_completed"
                one.pop("frames", None)
                one.update({k: v for k, v in their.items() if k == "frames"})
    assert different <= 12, different


def check_random_programs(seed, settings):
    """Of small and large blocks, alone and several in a segment, kept and freed, some used
    by another stream, with and without memory; in memory and in a file."""
    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings(settings)
    other_stream = torch.cuda.Stream()
    for context in (None, "state", "alloc", "all"):
        r = random.Random(seed)
        torch.cuda.empty_cache()
        both.start(context=context)
        file = memlab.MemorySnapshot(source="cuda", context=context, file="random.mlab")
        file.start()
        live = []
        for _ in range(200):
            if live and r.random() < 0.45:
                place = r.randrange(len(live))
                if r.random() < 0.3:
                    live[place].record_stream(other_stream)
                live.pop(place)
            elif r.random() < 0.05:
                try:
                    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    pass
            else:
                size = r.choice(
                    [512, 1 << 20, 2 << 20, 20 << 20, 30 << 20, r.getrandbits(24)]
                )
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if r.random() < 0.02:
                torch.cuda.empty_cache()
        try:
            # Of expandable segments, torch keeps no frames of a run of pages that does not
            # begin where its address space does: memlab does not know where that is.
            strictly = context is None or (context == "state" and "False" in settings)
            changed = allow if context == "alloc" else None
            theirs = both.check(strictly, changed)
            file.stop()
            both.check_file("random.mlab", theirs, strictly, changed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, context {context}: {error}") from error
        stop()
        live.clear()
        torch.cuda.empty_cache()


def one():
    return torch.empty(1000, device="cuda")


def two():
    return torch.empty(1000, device="cuda")


def three():
    return torch.empty(1000, device="cuda")


def check_changes():
    """A later call changes the context and keeps the history."""
    both.start(context="all")
    held = [one()]
    both.start(context=None)
    held.append(two())
    both.start(context="all")
    held.append(three())
    for snapshot in both.take():
        events, memory = names(snapshot)
        assert {"one", "three"} <= events and "two" not in events, events
        assert {"one", "three"} <= memory and "two" not in memory, memory
        assert both.actions(snapshot).count("alloc") == 3
    both.start(clear_history=True)
    held.append(two())
    for snapshot in both.take():
        assert both.actions(snapshot).count("alloc") == 1, both.actions(snapshot)
        assert "two" in names(snapshot)[0]
    stop()
    assert not any(memlab.snapshot()["device_traces"])


def check_legacy():
    """A bool first: torch's older signature, whose traces hold one entry if not told."""
    for context, alloc_context in itertools.product((False, True), repeat=2):
        arguments = (True, context, 100, alloc_context)
        torch.cuda.memory._record_memory_history(*arguments)
        memlab.record_memory_history(*arguments)
        live, freed = thealloc(), [thealloc()]
        thefree(freed)
        both.check()
        torch.cuda.memory._record_memory_history(False)
        memlab.record_memory_history(False)
        del live
        torch.cuda.empty_cache()
    memlab.record_memory_history(True)
    live = thealloc(), thealloc()
    assert len(memlab.snapshot()["device_traces"][0]) == 1
    del live
    stop()


check_contexts()
check_state_only()
check_free_stack()
# Address space that torch has reserved is never given back: no more than some thirty.
programs = int(sys.argv[2])
for seed in range(int(sys.argv[1]), int(sys.argv[1]) + programs):
    for settings in ("expandable_segments:False", "expandable_segments:True"):
        check_random_programs(seed, settings)
torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
check_changes()
check_legacy()
