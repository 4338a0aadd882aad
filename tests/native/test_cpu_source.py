"""The cpu source: every CPU allocation of torch once, nothing else changed."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import sourceprobe
from sourceprobe import ALLOC_AND_FREE, BACKWARD, BLOCK_KNOWN, program

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("torch")


def test_reports_an_allocation_and_its_free():
    sourceprobe.run(
        f"""
start("cpu")
x = torch.empty(1000, dtype=torch.float32)
address = x.data_ptr()
del x
events = probe.events("cpu")
assert [e["action"] for e in events] == {ALLOC_AND_FREE}, events
for e in events:
    assert e["addr"] == address
    assert e["size"] == e["block_bytes"] == 4000
    assert e["flags"] & {BLOCK_KNOWN}
    assert e["device"] == e["stream"] == 0
alloc, requested, completed = events
assert alloc["origin_stack"] == 0
assert requested["origin_stack"] == completed["origin_stack"] == alloc["stack"]
assert alloc["ticks"] < requested["ticks"] <= completed["ticks"]
"""
    )


def test_reports_nothing_for_empty_tensors_or_before_and_after_it_is_enabled():
    sourceprobe.run(
        """
assert probe.attach("cpu") == (0, "")
before = torch.empty(1000)
probe.enable("cpu", True)
torch.empty(0)
del before
probe.enable("cpu", False)
torch.empty(1000)
assert probe.events("cpu") == []
assert bridge.cpu_counters() == {"live": 0, "untracked": 0, "installed": False}
"""
    )


def test_totals_and_walk_agree_with_the_live_tensors():
    sourceprobe.run(
        """
start("cpu")
sizes = [1, 63, 64, 65, 4096, 1 << 20, (1 << 20) + 1, 10_000_000]
tensors = [torch.empty(size, dtype=torch.uint8) for size in sizes]
peak = torch.empty(1_000_000, dtype=torch.uint8)
del peak
del tensors[3]
live = {t.data_ptr(): t.numel() for t in tensors}
result, sentence, current, top = probe.totals("cpu")
assert (result, sentence) == (0, "")
assert set(current.values()) == {sum(sizes) - 65}
assert set(top.values()) == {sum(sizes) + 1_000_000}
result, _, segments, blocks, settings, annotations = probe.walk("cpu")
assert result == 0 and settings == {} and annotations == []
assert {s["address"]: s["total_size"] for s in segments} == live
assert {b["address"]: b["size"] for b in blocks} == live
for s, b in zip(segments, blocks):
    assert s["address"] == b["address"] and s["block_count"] == 1
    assert s["small"] == (s["total_size"] <= 1 << 20)
    assert b["state"] == "active_allocated" and b["stack"] == s["stack"] != 0
assert [s["first_block"] for s in segments] == list(range(len(segments)))
assert probe.stopped_walk("cpu", -4) == -4
"""
    )


def test_marks_what_backward_allocates():
    sourceprobe.run(
        f"""
w = torch.ones(1000, requires_grad=True)
start("cpu")
loss = (w * w).sum()
forward = len(probe.events("cpu"))
loss.backward()
events = probe.events("cpu")
assert not any(e["flags"] & {BACKWARD} for e in events[:forward])
assert any(e["flags"] & {BACKWARD} and e["action"] == "alloc" and e["size"] == 4000
           for e in events[forward:]), events[forward:]
"""
    )


def test_ticks_are_the_time_of_day():
    sourceprobe.run(
        """
import time
start("cpu")
before = time.time_ns()
x = torch.empty(10)
after = time.time_ns()
(ns,) = probe.unix_ns("cpu", [probe.events("cpu")[0]["ticks"]])
assert before - 1_000_000 <= ns <= after + 1_000_000, (before, ns, after)
"""
    )


def test_changes_no_result_alignment_or_sharing(tmp_path):
    body = f"""
import io, os, pickle
import numpy
torch.manual_seed(1)
out = []
def see(name, tensor):
    assert tensor.data_ptr() % 64 == 0 or tensor.storage_offset(), name
    out.append([name, tensor.double().sum().item(), list(tensor.shape)])
x = torch.randn(300, 300)
see("matmul", x @ x)
y = x.clone(); y.resize_(500, 500).fill_(2.0); see("resize", y)
y.untyped_storage().resize_(1_000_000 * 4); see("grown", y)
n = x.numpy(); n[0, 0] = 5.0; see("to numpy", x)
see("from numpy", torch.from_numpy(numpy.arange(10.0)) + 0)
c = torch._lazy_clone(x); see("copy on write", c); c.add_(1); see("written", c)
lone = torch._lazy_clone(torch.ones(64, 64)); lone.mul_(3); see("last reference", lone)
s = torch.ones(100).share_memory_(); see("shared", s * 2)
buffer = io.BytesIO(); torch.save(x, buffer); buffer.seek(0)
see("saved", torch.load(buffer))
torch.save(x, {str(tmp_path / "x.pt")!r})
see("mapped", torch.load({str(tmp_path / "x.pt")!r}, mmap=True) + 0)
see("pickled", pickle.loads(pickle.dumps(x)))
see("half", x.half() @ x.half())
m = torch.nn.LSTM(20, 30); see("lstm", m(torch.randn(5, 3, 20))[0].detach())
conv = torch.nn.Conv2d(3, 8, 3); see("conv", conv(torch.randn(2, 3, 32, 32)).detach())
w = torch.randn(50, 50, requires_grad=True); (w @ w).sum().backward(); see("grad", w.grad)
t = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)); see("dlpack", t)
print(json.dumps(out))
"""
    plain = sourceprobe.run(body).stdout
    recorded = sourceprobe.run('start("cpu")\n' + body).stdout
    assert json.loads(recorded) == json.loads(plain)
    assert len(json.loads(plain)) == 17


def test_a_storage_made_while_recording_outlives_the_recording():
    sourceprobe.run(
        """
start("cpu")
x = torch.arange(1000)
shared = x.untyped_storage()
probe.enable("cpu", False)
assert bridge.cpu_counters()["live"] == 1
assert not bridge.cpu_counters()["installed"]
recorded = len(probe.events("cpu"))
x.resize_(100_000)        # through the allocator that the storage remembers
assert x[:1000].tolist() == list(range(1000))
assert bridge.cpu_counters()["live"] == 0
probe.enable("cpu", True)
x.resize_(200_000)
probe.enable("cpu", False)
del x, shared
gc.collect()
assert [e["action"] for e in probe.events("cpu")[recorded:]] == ["alloc"]
assert bridge.cpu_counters()["live"] == 0
assert probe.totals("cpu")[2]["allocated"] == 0
"""
    )


def test_every_free_matches_one_allocation_with_many_threads():
    sourceprobe.run(
        """
import random, queue, threading
start("cpu")
passed = queue.SimpleQueue()
def work(seed):
    random_ = random.Random(seed)
    kept = []
    for i in range(3000):
        kept.append(torch.empty(random_.randrange(1, 5000), dtype=torch.uint8))
        if len(kept) > 20:
            passed.put(kept.pop(random_.randrange(20)))
        if i % 3 == 0 and not passed.empty():
            passed.get()          # mostly freed by another thread than its maker
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for i in range(50):
    result, _, segments, *_ = probe.walk("cpu")
    assert result == 0
    addresses = [s["address"] for s in segments]
    assert len(set(addresses)) == len(addresses)
for t in threads: t.join()
while not passed.empty(): passed.get()
del threads
gc.collect()
events = probe.events("cpu")
allocated = {e["stack"]: e for e in events if e["action"] == "alloc"}
for action in ("free_requested", "free_completed"):
    freed = [e for e in events if e["action"] == action]
    assert sorted(e["origin_stack"] for e in freed) == sorted(allocated), action
    for e in freed:
        alloc = allocated[e["origin_stack"]]
        assert (e["addr"], e["size"]) == (alloc["addr"], alloc["size"])
        assert e["ticks"] >= alloc["ticks"]
assert len(allocated) == 12_000
assert bridge.cpu_counters() == {"live": 0, "untracked": 0, "installed": True}
assert set(probe.totals("cpu")[2].values()) == {0}
"""
    )


def test_a_forked_child_reports_nothing_and_works():
    sourceprobe.run(
        """
import os
start("cpu")
kept = [torch.empty(100) for _ in range(10)]
child = os.fork()
if child == 0:
    seen = len(probe.events("cpu"))
    kept.pop()
    more = [torch.ones(100).sum().item() for _ in range(10)]
    quiet = len(probe.events("cpu")) == seen
    os._exit(0 if quiet and more == [100.0] * 10 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
before = len(probe.events("cpu"))
torch.empty(5)
assert len(probe.events("cpu")) == before + 3
"""
    )


def test_data_loader_workers_deliver_their_batches():
    sourceprobe.run(
        """
from torch.utils.data import DataLoader, TensorDataset
start("cpu")
data = TensorDataset(torch.arange(40.0))
for _ in range(2):
    loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert sum(batch[0].sum().item() for batch in loader) == 780.0
"""
    )


def test_recording_may_be_on_when_the_process_exits():
    for ending in ("", "sys.exit(0)", "import os; os._exit(0)"):
        done = sourceprobe.run(
            f"""
import atexit, threading, time
start("cpu")
kept = [torch.empty(1000) for _ in range(100)]
class Late:
    def __del__(self):
        self.tensor = None
late = Late(); late.tensor = torch.empty(1000); late.cycle = late
atexit.register(lambda: torch.empty(10))
{ending}
"""
        )
        # Triton 3.9 tells at the end what its own objects leaked.
        assert done.stderr.partition("nanobind: ")[0] == "", ending


def test_enabling_a_million_times_leaves_torch_as_it_was():
    sourceprobe.run(
        """
assert probe.attach("cpu") == (0, "")
for _ in range(500_000):
    probe.enable("cpu", True)
    probe.enable("cpu", False)
assert not bridge.cpu_counters()["installed"]
probe.enable("cpu", True)
torch.empty(10)
assert len(probe.events("cpu")) == 3
"""
    )


@pytest.mark.parametrize("sanitizer", ["none", "thread", "address"])
def test_the_table_of_live_allocations_under_threads(tmp_path, sanitizer):
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C++ compiler: {compiler[0]} not found")
    source = ROOT / "csrc" / "torch"
    files = [ROOT / "tests/helpers/cputable_stress.cpp", source / "sources" / "cpu_table.cpp"]
    flags = "-std=c++17 -O1 -g -Wall -Wextra -Wno-tsan -pthread".split()
    if sanitizer != "none":
        flags.append(f"-fsanitize={sanitizer}")
    made = subprocess.run(
        [*compiler, *flags, f"-I{source}", f"-I{ROOT}/csrc/core", *map(str, files), "-o", tmp_path / "stress"],
        capture_output=True,
        text=True,
    )
    if sanitizer != "none" and "cannot find" in made.stderr:
        pytest.skip(f"{compiler[0]} has no {sanitizer} sanitizer here")
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [tmp_path / "stress"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr


def test_native_stacks_have_names():
    for mode in ("dladdr", "fast"):
        sourceprobe.run(
            """
frames = probe.native_stack(bridge._native)
functions = [function for function, file, line in frames]
assert 5 < len(frames) < 512
assert any("probe_native_stack" in f for f in functions[:6]) or "dladdr" == MODE
assert any("Py" in f for f in functions), functions
assert all(isinstance(line, int) for _, _, line in frames)
assert functions[-1] == "??", frames[-1]
""".replace("MODE", repr(mode)),
            env={"TORCH_SYMBOLIZE_MODE": mode},
        )


def test_the_program_helper_stops_on_a_failing_program():
    # The tests above assert inside their programs; this shows that they can fail.
    assert "import sourceprobe" in program("")
    with pytest.raises(pytest.fail.Exception, match="exit status 1"):
        sourceprobe.run("assert probe.events('cpu')")
