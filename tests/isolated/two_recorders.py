"""Recordings side by side, torch's own among them: each is as if it were alone."""

import both
import torch

import memlab

KIB = 1 << 10


def alloc(size=5000 * KIB):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def names(recording):
    snapshot = recording.to_dict()
    events, memory = set(), set()
    for event in snapshot["device_traces"][0]:
        events.update(frame["name"] for frame in event.get("frames", []))
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            memory.update(frame["name"] for frame in block["frames"])
    return events, memory


def check_entries():
    recorders = {
        n: memlab.MemorySnapshot(max_entries=n).start() for n in (10, 100, 1000)
    }
    for i in range(100):
        alloc(i + 1)
    last = None
    for n, recorder in recorders.items():
        recording = recorder.stop().data()
        trace = recording.to_dict()["device_traces"][0]
        whole = [event for event in trace if event["action"] != "snapshot"]
        # A recorder's own last walk, and those of the ones stopped before it.
        walks = list(recorders).index(n)
        assert len(trace) == min(n, 300 + walks), (n, len(trace))
        count = recording.counts(0)
        assert count["events"] + count["overwritten_events"] == 300 + walks, count
        if last is not None:
            shorter = min(len(last), len(whole))
            both._same(whole[-shorter:], last[-shorter:], f"max_entries={n}")
        last = whole


def check_contexts():
    def freeing(held):
        held.clear()

    def options():
        for context in (None, "state", "alloc", "all"):
            yield context, "python"
        yield "all", "all"

    recorders = {
        key: memlab.MemorySnapshot(context=key[0], stacks=key[1]).start()
        for key in options()
    }
    held = [alloc()]
    freeing(held)
    live = alloc()
    for (context, stacks), recorder in recorders.items():
        events, memory = names(recorder.stop().data())
        where = (context, stacks, events, memory)
        assert ("freeing" in events) == (context == "all"), where
        assert ("alloc" in events) == (context in ("alloc", "all")), where
        assert ("alloc" in memory) == (context is not None), where
        native = any("::" in name for name in events | memory)
        assert native == (stacks == "all"), where
    del live


def check_windows():
    """Each holds the events between its own start and stop, whatever others do."""
    outer = memlab.MemorySnapshot().start()
    first = alloc(1)
    inner = memlab.MemorySnapshot().start()
    second = alloc(2)
    inner.stop()
    third = alloc(3)
    outer.stop()
    late = memlab.MemorySnapshot().start()
    fourth = alloc(4)
    late.stop()

    def sizes(recorder):
        trace = recorder.data().to_dict()["device_traces"][0]
        return [event["size"] for event in trace if event["action"] == "alloc"]

    assert sizes(inner) == [2] and sizes(outer) == [1, 2, 3] and sizes(late) == [4]
    assert first is not second is not third is not fourth
    held = [memlab.MemorySnapshot().start() for _ in range(16)]
    try:
        memlab.MemorySnapshot().start()
    except memlab.Error as error:
        assert "16 recordings are under way" in str(error), error
    else:
        raise AssertionError("17 at once")
    del held
    memlab.MemorySnapshot().start().stop()


def check_torch_is_untouched():
    """torch's history with memlab starting and stopping, but for its walks' events."""
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=10_000)
    held, expected = [], []
    for i in range(50):
        recorder = memlab.MemorySnapshot().start()
        held.append(alloc(1000 + i))
        memlab.record_memory_history()
        held.append(alloc(2000 + i))
        memlab.record_memory_history(None)
        recorder.stop()
        del recorder
        expected += [1000 + i, 2000 + i]
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    assert [e["size"] for e in trace if e["action"] == "alloc"] == expected
    assert {e["action"] for e in trace} <= {"alloc", "segment_alloc", "snapshot"}
    assert trace[-2]["frames"] or trace[-1]["frames"]
    assert all(e["frames"] for e in trace if e["action"] == "alloc")
    assert torch._C._cuda_isHistoryEnabled()
    torch.cuda.memory._record_memory_history(None)
    # torch's own stop does not stop memlab.
    memlab.record_memory_history()
    torch.cuda.memory._record_memory_history(stacks="python")
    torch.cuda.memory._record_memory_history(None)
    held.append(alloc(77))
    assert memlab.snapshot()["device_traces"][0][-1]["size"] == 77
    memlab.record_memory_history(None)


torch.empty(1, device="cuda")
check_entries()
check_contexts()
check_windows()
check_torch_is_untouched()
