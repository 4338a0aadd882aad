"""torch's recording functions and memlab's, called alike; two CUDA devices or one."""

import itertools
import pickle
import pickletools

import both
import torch

import memlab

# What the viewer at pytorch.org/memory_viz can read (FORMAT: pickle, protocols 2 to 4).
VIEWER_OPCODES = set(
    "PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT "
    "SHORT_BINUNICODE BINUNICODE EMPTY_LIST EMPTY_DICT EMPTY_TUPLE LIST DICT TUPLE "
    "TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS MEMOIZE BINPUT LONG_BINPUT "
    "BINGET LONG_BINGET".split()
)


def stop():
    torch.cuda.memory._record_memory_history(None)
    memlab.record_memory_history(None)


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    raise AssertionError(f"{args} {kwargs} was taken")


def check_errors():
    for bad in (
        {"enabled": "bad"},
        {"enabled": "none"},
        {"context": "bad"},
        {"stacks": "c++"},
        {"enabled": "bad", "context": "bad"},
        {"context": "bad", "stacks": "bad"},
    ):
        theirs = error_of(torch.cuda.memory._record_memory_history, **bad)
        assert error_of(memlab.record_memory_history, **bad) == theirs
        assert error_of(memlab._record_memory_history, **bad) == theirs
    assert memlab.snapshot()["device_traces"][0] == []


def check_ring():
    """max_entries keeps the newest: the end of the whole history that torch keeps."""
    torch.cuda.memory._record_memory_history(stacks="python")
    for entries in (0, 1, 2, 100, 599, 600, 601):
        memlab.record_memory_history(max_entries=entries)
        for size in range(1, 201):
            torch.empty(size, device="cuda")
        ours = memlab.snapshot()["device_traces"][0]
        memlab.record_memory_history(None)
        theirs = torch.cuda.memory._snapshot()["device_traces"][0]
        # The newest is memlab's own walk, which it shows in its next snapshot.
        assert theirs.pop()["action"] == "snapshot"
        assert len(ours) == max(1, min(600, entries)), (entries, len(ours))
        both._same(ours, theirs[-len(ours) :], f"max_entries={entries}")
    stop()


def check_out_of_memory():
    both.start()
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    event = both.check()["device_traces"][0][-1]
    assert event["action"] == "oom" and event["size"] == 4398046511104
    assert "device_free" in event and "addr" not in event
    stop()


def check_deferred_free():
    """A block in use on another stream is free only once that stream is done."""
    held = torch.empty(1 << 22, device="cuda")
    address = held.data_ptr()
    side = torch.cuda.Stream()
    held.record_stream(side)
    both.start()
    del held
    snapshot = memlab.snapshot()
    mine = [
        e["action"] for e in snapshot["device_traces"][0] if e.get("addr") == address
    ]
    states = {
        block["address"]: block["state"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
    }
    assert mine == ["free_requested"], mine
    assert states[address] == "active_pending_free"
    both.check()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    snapshot = both.check()
    mine = [
        e["action"] for e in snapshot["device_traces"][0] if e.get("addr") == address
    ]
    assert mine == ["free_requested", "free_completed", "segment_free"], mine
    stop()


def check_metadata():
    both.start()
    texts = ["", "epoch 1", "ein Wort: größer ≠ 大", "x" * 5000]
    held = []
    for text in texts:
        torch.cuda.memory._set_memory_metadata(text)
        held.append(torch.empty(1 << 20, device="cuda"))
    torch.cuda.memory._set_memory_metadata("")
    trace = both.check()["device_traces"][0]
    seen = [e["user_metadata"] for e in trace if e["action"] == "alloc"]
    assert seen == texts, seen
    stop()


def check_dump():
    both.start()
    held = [torch.empty(size, device="cuda") for size in (1, 70_000, 3_000_000)]
    del held[1]
    torch.cuda.memory._set_memory_metadata("größer")
    held.append(torch.empty(300, device="cuda"))
    torch.cuda.memory._set_memory_metadata("")
    memlab.dump_snapshot("ours.pickle")
    now = memlab.snapshot()
    for trace in now["device_traces"]:
        assert trace.pop()["action"] == "snapshot", "of the walk for the file"
    data = open("ours.pickle", "rb").read()
    assert data[:2] == b"\x80\x04", "protocol 4"
    found = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert found <= VIEWER_OPCODES, found - VIEWER_OPCODES
    both._same(pickle.loads(data), now, "dump")
    both._same(memlab.load("ours.pickle"), pickle.loads(data), "load")
    stop()


def check_device():
    if torch.cuda.device_count() < 2:
        print("one device only: device= is not checked")
        return
    for wanted, device in itertools.product((0, 1), (0, 1)):
        memlab.record_memory_history(device=wanted)
        torch.empty(100, device=f"cuda:{device}")
        traces = memlab.snapshot()["device_traces"]
        assert len(traces) == 2
        assert bool(traces[wanted]) == (device == wanted), traces
        assert traces[1 - wanted] == [], traces
        memlab.record_memory_history(None)
    memlab.record_memory_history()
    held = [torch.empty(100, device=f"cuda:{i}") for i in (0, 1)]
    for i in (0, 1):
        only = memlab.snapshot(device=i)
        assert {segment["device"] for segment in only["segments"]} == {i}
        assert only["device_traces"][i] and only["device_traces"][1 - i] == []
    assert len(held) == 2
    stop()


def check_cpp_frames():
    def names(stacks):
        memlab.record_memory_history(stacks=stacks, max_entries=4)
        held = torch.rand(311, 411, device="cuda")
        snapshot = memlab.snapshot()
        memlab.record_memory_history(None)
        alloc = snapshot["device_traces"][0][-1]
        assert alloc["action"] == "alloc" and alloc["addr"] == held.data_ptr()
        blocks = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"]}
        block = blocks[held.data_ptr()]
        assert (block["requested_size"], block["size"]) == (511284, 511488)
        assert block["frames"] == alloc["frames"]
        return [frame["name"] for frame in alloc["frames"]]

    python, everything = names("python"), names("all")
    assert not any("::" in name for name in python), python
    assert any("::rand" in name for name in everything), everything
    assert [name for name in everything if name in python] == python, everything


def main():
    torch.empty(1, device="cuda")
    check_errors()
    check_ring()
    check_out_of_memory()
    check_deferred_free()
    check_metadata()
    check_dump()
    check_device()
    check_cpp_frames()


if __name__ == "__main__":
    main()
