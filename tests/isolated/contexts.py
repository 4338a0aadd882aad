"""What each value of `enabled` and `context` keeps, beside torch's own recorder."""

import itertools

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
        snapshot = both.check()
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
    assert memlab.snapshot()["device_traces"] == [[]]


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
check_changes()
check_legacy()
