"""Recording that begins before the program uses CUDA."""

import sys

import torch

import memlab

memlab.record_memory_history(None)
memlab.record_memory_history()
snapshot = memlab.MemorySnapshot().start()
assert not torch.cuda.is_initialized()
assert snapshot.recording and snapshot.waiting
memlab.dump_snapshot("early.pickle")
for empty in (memlab.snapshot(), memlab.load("early.pickle")):
    assert empty["segments"] == [] and not any(empty["device_traces"]), empty
recording = snapshot.data()
assert not any(recording.counts(i)["events"] for i in range(recording.device_count))
memlab.record_memory_history(context="alloc")
memlab.record_memory_history(clear_history=True)
stopped = memlab.MemorySnapshot().start()
stopped.stop()
assert not torch.cuda.is_initialized(), "memlab initialised CUDA"

held = torch.empty(1000, device="cuda")
assert torch.cuda.is_initialized() and not snapshot.waiting
actions = [event["action"] for event in memlab.snapshot()["device_traces"][0]]
assert actions == ["segment_alloc", "alloc"], actions
assert snapshot.data().counts(0)["events"] >= 2
assert stopped.data().device_count == 0
stats = memlab.stats()
assert stats["allocated_bytes"] == torch.cuda.memory_allocated() == 4096, stats
snapshot.stop()
memlab.record_memory_history(None)
del held
assert memlab.snapshot()["device_traces"] == [[]] * torch.cuda.device_count()
sys.exit(0)
