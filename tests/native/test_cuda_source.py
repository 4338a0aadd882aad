"""The cuda source against torch's own memory history, on a GPU or the phantom device."""

import pytest
from sourceprobe import BACKWARD, EINVALID, ESTATE, EUNSUPPORTED, POOL_KNOWN, program

pytestmark = pytest.mark.cuda

# Attaches when the program itself initialises CUDA, as the recorder does.
LATER = """
assert probe.attach("cuda") == (0, ""), probe.attach("cuda")
probe.enable("cuda", True)
torch.cuda._lazy_call(lambda: probe.attach("cuda"))
"""

NOW = """
torch.cuda.init()
start("cuda")
"""

# A step with small and large blocks, side streams, deferred frees and released segments.
WORK = """
def work(device):
    with torch.cuda.device(device):
        w = torch.randn(300, 400, device="cuda", requires_grad=True)
        (w * w).relu().sum().backward()
        side = torch.cuda.Stream()
        x = torch.empty(3_000_000, device="cuda")
        with torch.cuda.stream(side):
            y = torch.empty(30_000_000, device="cuda")
            x.record_stream(side)
        del x, y
        kept = [torch.empty(n, device="cuda") for n in (1, 1000, 700_000, 9_000_000)]
        del kept[2]
        torch.cuda.empty_cache()
        return w, kept
"""


@pytest.fixture
def run(phantom_run):
    """Runs a program that starts with the bridge at the probe, on two devices where the
    machine has no GPU of its own."""

    def run(body, *, env=None, **options):
        env = {"MEMLAB_PHANTOM_DEVICES": "2", **(env or {})}
        return phantom_run(program(body), env=env, **options)

    return run


def test_attaching_does_not_initialise_cuda(run):
    run(
        f"""
import os
{LATER}
bridge.set_oom_callback(print)
assert probe.device_count("cuda") == 0
assert probe.walk("cuda") == (0, "", [], [], {{}}, [])
assert probe.rules("cuda")[0] == 0
assert not torch.cuda.is_initialized()
assert probe.totals("cuda")[:2] == ({ESTATE}, "CUDA is not initialised yet")
child = os.fork()      # could not use CUDA if the parent had initialised it
if child == 0:
    torch.empty(10, device="cuda")
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
torch.empty(10, device="cuda")
assert probe.device_count("cuda") == torch.cuda.device_count()
assert probe.totals("cuda", 63)[0] == {EINVALID}
assert actions("cuda") == ["segment_alloc", "alloc", "free_requested", "free_completed"]
"""
    )


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_events_are_those_of_torch_in_its_order(run, conf):
    run(
        f"""
{WORK}
{NOW}
probe.enable("cuda", False)
torch.empty(1000, device="cuda")
assert probe.events("cuda") == []
torch.cuda.memory._record_memory_history(context=None)
probe.enable("cuda", True)
live = [work(d) for d in range(torch.cuda.device_count())]
probe.enable("cuda", False)
snapshot = torch.cuda.memory._snapshot()
events = probe.events("cuda")
assert len(events) > 30 * torch.cuda.device_count()
for device, trace in enumerate(snapshot["device_traces"]):
    ours = [e for e in events if e["device"] == device]
    assert len(ours) == len(trace) > 30
    ns = probe.unix_ns("cuda", [e["ticks"] for e in ours])
    for e, t, at in zip(ours, trace, ns):
        assert (e["action"], e["addr"], e["size"], e["stream"]) == (
            t["action"], t["addr"], t["size"], t["stream"]), (e, t)
        if "pool_id" in t:
            assert e["flags"] & {POOL_KNOWN} and e["pool"] == t["pool_id"]
        assert e["metadata"] == t.get("user_metadata", "")
        # Both clocks are measured anew at each conversion.
        assert abs(at // 1000 - t["time_us"]) <= 20
kinds = {{e["action"] for e in events}}
assert {{"alloc", "free_requested", "free_completed"}} < kinds
assert ("segment_map" in kinds) == ("expandable" in {conf!r})
""",
        env={"PYTORCH_CUDA_ALLOC_CONF": conf},
    )


def test_walk_is_torchs_snapshot(run):
    run(
        f"""
{WORK}
{NOW}
torch.cuda.memory._record_memory_history(context=None)
live = [work(d) for d in range(torch.cuda.device_count())]
with torch.profiler.record_function("a step"):
    torch.empty(10, device="cuda")
probe.clear()
theirs = torch.cuda.memory._snapshot()
result, sentence, segments, blocks, settings, annotations = probe.walk("cuda")
assert (result, sentence) == (0, "")
assert list(settings.items()) == list(theirs["allocator_settings"].items())
assert [type(v) for v in settings.values()] == [
    type(v) for v in theirs["allocator_settings"].values()]
same = "device address total_size allocated_size active_size requested_size".split()
same += ["stream", "segment_pool_id", "is_expandable"]
assert len(segments) == len(theirs["segments"]) > 2 * torch.cuda.device_count()
first = {{}}
for ours, other in zip(segments, theirs["segments"]):
    assert {{k: ours[k] for k in same}} == {{k: other[k] for k in same}}
    assert ours["small"] == (other["segment_type"] == "small")
    assert ours["block_count"] == len(other["blocks"])
    assert ours["first_block"] == first.get(ours["device"], 0)
    first[ours["device"]] = ours["first_block"] + ours["block_count"]
expected = [
    (s["device"], b["address"], b["size"], b["requested_size"], b["state"])
    for s in theirs["segments"] for b in s["blocks"]]
keys = "device address size requested_size state".split()
assert [tuple(b[k] for k in keys) for b in blocks] == expected
assert {{b["state"] for b in blocks}} >= {{"inactive", "active_allocated"}}
at = probe.unix_ns("cuda", [a["ticks"] for a in annotations])
theirs = [(a["name"], a["stage"], a["device"], a["time_us"])
          for a in theirs["external_annotations"]]
assert [t[:2] for t in theirs] == [("a step", "START"), ("a step", "END")]
for ours, other, ns in zip(annotations, theirs, at, strict=True):
    assert (ours["name"], ours["stage"], ours["device"]) == other[:3]
    assert abs(ns // 1000 - other[3]) <= 20
# torch's snapshot and ours: one event a device each, in order, at device 0 in torch.
devices = list(range(torch.cuda.device_count()))
events = probe.events("cuda")
assert [e["action"] for e in events] == ["snapshot"] * 2 * len(devices)
assert [e["device"] for e in events] == devices * 2
active = [torch.cuda.memory_stats(d)["active_bytes.all.current"] for d in devices]
assert [e["size"] for e in events] == active * 2
assert probe.stopped_walk("cuda", -4) == -4
"""
    )


def test_foreign_snapshots_while_disabled_do_not_shift_the_devices(run):
    run(
        f"""
{NOW}
probe.enable("cuda", False)
for _ in range(3):
    torch.cuda.memory._snapshot()
probe.enable("cuda", True)
probe.walk("cuda")
torch.cuda.memory_snapshot()
devices = list(range(torch.cuda.device_count()))
assert [e["device"] for e in probe.events("cuda")] == devices * 2
"""
    )


def test_rules_follow_the_settings_at_run_time(run):
    run(
        f"""
{NOW}
assert probe.rules("cuda") == (0, 2**64 - 1, False, True, [0] * 16)
torch.cuda.memory._set_allocator_settings(
    "roundup_power2_divisions:[64:2,256:4,>:8],max_split_size_mb:200")
result, max_split, expandable, has_segments, divisions = probe.rules("cuda")
assert (result, max_split, has_segments) == (0, 200 << 20, True)
theirs = torch.cuda.memory._snapshot()["allocator_settings"]
assert divisions == list(theirs["roundup_power2_divisions"].values())
assert divisions[:6] == [2] * 6 and divisions[10:] == [8] * 6   # from 1 GiB on: >
"""
    )
    run(
        f"{NOW}\nassert probe.rules('cuda')[2] is True",
        env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )


def test_totals_are_memory_stats(run):
    run(
        f"""
{WORK}
{NOW}
live = [work(d) for d in range(torch.cuda.device_count())]
for d in range(torch.cuda.device_count()):
    result, sentence, current, peak = probe.totals("cuda", d)
    assert (result, sentence) == (0, "")
    stats = torch.cuda.memory_stats(d)
    for name in ("allocated", "active", "requested", "reserved"):
        assert current[name] == stats[name + "_bytes.all.current"] > 0
        assert peak[name] == stats[name + "_bytes.all.peak"] > current[name]
"""
    )


def test_pools_and_metadata_come_with_the_event(run):
    run(
        f"""
{NOW}
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    x = torch.empty(100, device="cuda")
(event,) = [e for e in probe.events("cuda") if e["action"] == "alloc"]
if event["flags"] & {POOL_KNOWN}:
    assert event["pool"] == pool.id != (0, 0)
else:
    assert torch.__version__ < "2.8"
assert probe.walk("cuda")[2][0]["segment_pool_id"] == pool.id
if hasattr(torch.cuda.memory, "_set_memory_metadata"):
    probe.clear()
    torch.cuda.memory._set_memory_metadata("pass \\u00e9")
    y = torch.empty(100, device="cuda")
    assert {{e["metadata"] for e in probe.events("cuda")}} == {{"pass \\u00e9"}}
"""
    )


def test_marks_what_backward_allocates(run):
    run(
        f"""
{NOW}
w = torch.ones(1000, 1000, device="cuda", requires_grad=True)
loss = (w * w).sum()
assert not any(e["flags"] & {BACKWARD} for e in probe.events("cuda"))
probe.clear()
loss.backward()
del loss
made = [e for e in probe.events("cuda") if e["action"] == "alloc"]
assert sum(e["size"] for e in made if e["flags"] & {BACKWARD}) >= 4_000_000
torch.cuda.empty_cache()
"""
    )


def test_out_of_memory_calls_back_before_torch_raises(run):
    done = run(
        f"""
{LATER}
calls = []
def callback(*arguments):
    calls.append(arguments)
    assert probe.walk("cuda")[0] == 0      # the device's lock is not held
    raise ValueError("wrong")
bridge.set_oom_callback(callback)
wanted = 1 << 46
for _ in range(2):
    try:
        torch.empty(wanted, device="cuda", dtype=torch.uint8)
    except torch.cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("no error")
assert len(calls) == 2
device, size, total, free = calls[0]
assert (device, size) == (0, wanted)
assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
(event, _) = [e for e in probe.events("cuda") if e["action"] == "oom"]
assert (event["addr"], event["size"]) == (free, wanted)
bridge.set_oom_callback(None)
try:
    torch.empty(wanted, device="cuda", dtype=torch.uint8)
except torch.cuda.OutOfMemoryError:
    pass
assert len(calls) == 2
try:
    bridge.set_oom_callback(3)
except TypeError:
    pass
else:
    raise AssertionError("3 was taken")
"""
    )
    assert done.stderr.count("ValueError: wrong") == 2


def test_cuda_malloc_async_is_refused_by_the_name_of_its_setting(run):
    run(
        f"""
result, sentence = probe.attach("cuda")
assert result == {EUNSUPPORTED}
assert "PYTORCH_CUDA_ALLOC_CONF" in sentence and "cudaMallocAsync" in sentence
assert probe.walk("cuda")[:2] == (result, sentence)
assert probe.device_count("cuda") == 0
assert not torch.cuda.is_initialized()
""",
        env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    )


def test_a_pluggable_allocator_is_refused_by_the_name_of_its_call(run):
    run(
        f"""
import ctypes
allocator = torch.cuda.memory.CUDAPluggableAllocator(
    ctypes.CDLL(None)._name, "malloc", "free")
torch.cuda.memory.change_current_allocator(allocator)
result, sentence = probe.attach("cuda")
assert result == {EUNSUPPORTED}
assert "change_current_allocator" in sentence
try:
    bridge.set_oom_callback(print)
except RuntimeError as error:
    assert str(error) == sentence
else:
    raise AssertionError("the callback was taken")
"""
    )


def test_a_forked_child_reports_nothing(run):
    run(
        f"""
import os
{NOW}
kept = [torch.empty(1000, device="cuda") for _ in range(3)]
seen = len(probe.events("cuda"))
child = os.fork()
if child == 0:
    kept.clear()      # frees CUDA memory in the child's copy of the allocator
    os._exit(len(probe.events("cuda")) - seen)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
kept.clear()
assert len(probe.events("cuda")) == seen + 6
"""
    )


def test_pinned_memory_is_not_the_cpu_sources(run):
    run(
        """
start("cpu")
x = torch.empty(1000, pin_memory=True)
assert x.is_pinned()
del x
assert probe.events("cpu") == []
"""
    )


def test_registering_twice_or_with_a_stranger_is_refused(run):
    run(
        """
assert registered == ["cuda", "cpu"]
assert bridge.built_for() == torch.__version__
for wrong, error in ((probe._api, RuntimeError), (bridge._native, ValueError)):
    try:
        bridge.register(wrong)
    except error:
        pass
    else:
        raise AssertionError(wrong)
"""
    )
