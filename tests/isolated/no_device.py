"""torch's recording functions where there is no CUDA device: memlab records the CPU."""

import torch

import memlab

memlab.record_memory_history(None)
memlab.record_memory_history()
held = torch.empty(1000, dtype=torch.uint8)
trace = memlab.snapshot()["device_traces"][0]
mine = [event for event in trace if event["addr"] == held.data_ptr()]
assert [(event["action"], event["size"]) for event in mine] == [("alloc", 1000)], mine
assert mine[0]["frames"][0]["filename"] == __file__, mine[0]
memlab.dump_snapshot("cpu.pickle")
assert memlab.load("cpu.pickle")["segments"]
memlab.record_memory_history(None)
memlab.record_memory_history(None)
assert not torch.cuda.is_initialized()
try:
    memlab.MemorySnapshot(source="cuda").start().stop()
except memlab.Error as error:
    print(error)
assert not torch.cuda.is_initialized()
