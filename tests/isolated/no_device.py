"""torch's recording functions where there is no CUDA device: as torch's, they raise."""

import torch

import memlab

try:
    torch.cuda.memory._record_memory_history("all")
except (AttributeError, AssertionError, RuntimeError) as error:
    # A build for CPUs lacks the function.
    print("torch:", error)
else:
    raise SystemExit("torch recorded")
for function, *arguments in (
    (memlab.record_memory_history,),
    (memlab.record_memory_history, "all"),
    (memlab.record_memory_history, "state"),
    (memlab.record_memory_history, True),
    (memlab._record_memory_history,),
    (memlab.snapshot,),
    (memlab.dump_snapshot, "none.pickle"),
    (memlab.MemorySnapshot(source="cuda").start,),
):
    try:
        function(*arguments)
    except memlab.Error as error:
        assert isinstance(error, RuntimeError)
        told = str(error)
        if torch.version.cuda is None:
            assert "the cuda source is not available" in told, told
            continue
        assert "no GPU here" in told and "memlab phantom" in told, told
        assert "memlab.MemorySnapshot(source='cpu')" in told, told
    else:
        raise SystemExit(f"{function} recorded")
# There is nothing to stop, which is no error.
memlab.record_memory_history(None)
assert not torch.cuda.is_initialized()
# What the error says.
recorder = memlab.MemorySnapshot(source="cpu").start()
held = torch.empty(1000, dtype=torch.uint8)
recorder.stop()
events = recorder.data().to_dict()["device_traces"][0]
mine = [event for event in events if event["addr"] == held.data_ptr()]
assert [(event["action"], event["size"]) for event in mine] == [("alloc", 1000)], mine
