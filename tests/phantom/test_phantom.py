"""The phantom device: programs of a CUDA build of torch run unchanged, without a GPU.

Every program runs on the phantom, on a machine with a GPU too.  What a real H200 said
is in tests/data/h200_peaks.json.
"""

import functools
import importlib.metadata
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from on_phantom import PROGRAMS, ROOT, needs_library, needs_torch, output, run

from memlab import phantom

DATA = ROOT / "tests" / "data"
MIB = 1 << 20


# --- Features of torch ---------------------------------------------------------------

FEATURES = re.findall(r"^@feature\ndef (\w+)", (PROGRAMS / "features.py").read_text(), re.M)


@functools.cache
def feature_errors():
    lines = output(PROGRAMS / "features.py", forked=True).splitlines()
    return dict(json.loads(line) for line in lines)


@needs_torch
@pytest.mark.parametrize("name", FEATURES)
def test_feature_runs(name):
    assert feature_errors()[name] is None


# --- What a program sees of the device -----------------------------------------------


@needs_torch
@pytest.mark.parametrize("gpu", ["a100-40", "t4"])
def test_properties_are_those_of_the_table(gpu):
    known = phantom.gpus()[gpu]
    name, major, minor, processors, total = output(
        "import torch; p = torch.cuda.get_device_properties(0);"
        "print(p.name, p.major, p.minor, p.multi_processor_count,"
        " torch.cuda.mem_get_info()[1], sep='|')",
        gpu=gpu,
        forked=True,
    ).split("|")
    assert name == known.full_name
    assert f"{major}.{minor}" == known.capability
    assert int(processors) == known.multiprocessors
    assert int(total) == known.total_bytes


@needs_torch
def test_out_of_memory_is_torchs_own_error():
    message = output(
        """
import torch
kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
try:
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error)
torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
""",
        memory="2GiB",
        forked=True,
    )
    assert "Tried to allocate 1024.00 MiB" in message
    assert "total capacity of 2.00 GiB" in message
    # The context's 610 MiB and the 1 GiB that was kept; NVML tells torch.
    assert "this process has 1.60 GiB memory in use" in message


@needs_torch
def test_two_devices_are_kept_apart():
    used = output(
        """
import torch
assert torch.cuda.device_count() == 2
first = torch.randn(1 << 20, device="cuda:0")
second = first.to("cuda:1")
torch.nn.Linear(8, 8).to("cuda:1")(torch.randn(2, 8, device="cuda:1")).sum().backward()
assert second.device.index == 1 and second.cpu().shape == first.shape
torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")
free = [torch.cuda.mem_get_info(i)[0] for i in (0, 1)]
reserved = [torch.cuda.memory_reserved(i) for i in (0, 1)]
# A handle of cuBLAS for this thread, one for that of the backward pass.
print(free[0] - free[1] - (132 << 20) == reserved[1] - reserved[0] > 0)
""",
        devices=2,
        forked=True,
    )
    assert used == "True"


@needs_torch
@pytest.mark.parametrize("visible, count", [("1", 1), ("0,1", 2), ("", 0), ("1,7,0", 1)])
def test_cuda_visible_devices(visible, count):
    # Set before CUDA is used, in a process that has imported torch; from the start in
    # test_nvml_and_the_runtime_mean_the_same_device.
    program = f"""
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = {visible!r}
print(torch.cuda.device_count())
"""
    assert output(program, devices=3, forked=True) == str(count)


@needs_torch
def test_allocating_makes_the_context():
    program = """
import torch
torch.cuda.init()
print(torch._C._cuda_hasPrimaryContext(1))
kept = torch.empty(3, device="cuda:1")
print(torch._C._cuda_hasPrimaryContext(1))
"""
    assert output(program, devices=2, forked=True).split() == ["False", "True"]


@needs_torch
@pytest.mark.parametrize("visible, count", [(None, 3), ("2", 1), ("2,0", 2), ("", 0)])
def test_nvml_counts_devices(visible, count):
    variables = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    if visible is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    program = f"""
import os, torch
os.environ.update({variables})
print(torch.cuda._raw_device_count_nvml(), torch.cuda._device_count_nvml())
print(torch.cuda.is_available(), torch.cuda.device_count())
"""
    # NVML itself knows nothing of CUDA_VISIBLE_DEVICES.
    expected = f"3 {count}\n{count > 0} {count}"
    assert output(program, devices=3, forked=True) == expected


@needs_torch
def test_nvml_and_the_runtime_mean_the_same_device():
    program = """
import torch
print(torch.cuda._raw_device_uuid_nvml())
print(["GPU-" + str(torch.cuda.get_device_properties(i).uuid) for i in (0, 1)])
"""
    env = {"CUDA_VISIBLE_DEVICES": "2,0"}
    nvml, runtime = map(eval, output(program, devices=3, env=env).splitlines())
    assert len(set(nvml)) == 3
    assert runtime == [nvml[2], nvml[0]]


NVML_PROCESSES = """
import ctypes, os, torch
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
def ask(index):
    device, memory = ctypes.c_void_p(), Memory()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    count, processes = ctypes.c_uint(4), (Process * 4)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses(
        device, ctypes.byref(count), processes) == 0
    assert memory.total - memory.free == memory.used
    users = [(p.pid == os.getpid(), p.used) for p in processes[:count.value]]
    return memory.used, users
print(ask(0), ask(1), sep="\\n")
kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
print(ask(0), ask(1), sep="\\n")
"""


@needs_torch
def test_nvml_says_who_uses_which_device():
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    lines = output(NVML_PROCESSES, devices=2, env=env).splitlines()
    told = [eval(line) for line in lines]
    used = (100 + 610) * MIB  # with the context
    assert told == [(0, []), (0, []), (0, []), (used, [(True, used)])]


@needs_torch
def test_torch_asks_nvml_through_pynvml():
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("pynvml is not installed: pip install nvidia-ml-py")
    program = """
import os, torch
kept = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
told = torch.cuda.list_gpu_processes().split()
print(told[0], told[2] == str(os.getpid()), told[4], torch.cuda.utilization())
import pynvml
try:
    torch.cuda.temperature()
except pynvml.NVMLError_NotSupported:
    print("no sensor")
"""
    assert output(program, forked=True) == "GPU:0 True 796.000 0\nno sensor"


@needs_torch
def test_expandable_segments_grow_in_place():
    program = """
import torch
kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
segments = torch.cuda.memory_snapshot()
assert all(segment["is_expandable"] for segment in segments)
assert len(segments) == 1
print(torch.cuda.memory_reserved())
del kept
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved())
"""
    env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    # Three times 30 MiB in granules of 20 MiB, without a gap: 100 MiB.
    assert output(program, env=env).split() == [str(100 * MIB), "0"]


@needs_torch
def test_cuda_malloc_async_backend():
    program = """
import torch
kept = torch.empty(3000, dtype=torch.uint8, device="cuda")
print(torch.cuda.memory_allocated())
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory")
"""
    env = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    assert output(program, env=env).split("\n")[:2] == ["3072", "out of memory"]


@needs_torch
@pytest.mark.parametrize("backed", [True, False])
def test_copies_carry_data_where_memory_is_backed(backed):
    program = """
import ctypes, torch
runtime = ctypes.CDLL(None)
data = torch.arange(5000, dtype=torch.int32)
device = data.to("cuda")
again = torch.empty_like(device)
again.copy_(device)
there = torch.equal(again.cpu(), data)
address = ctypes.c_void_p(again.data_ptr())
assert runtime.cudaMemset(address, 1, ctypes.c_size_t(8)) == 0
print(there, again.cpu()[:3].tolist())
"""
    # Two integers of bytes that are all 1, then the third of the range.
    expected = "True [16843009, 16843009, 2]" if backed else "False [0, 0, 0]"
    assert output(program, backed=backed, forked=True) == expected


@needs_torch
def test_banner_is_shown_once_at_the_first_use_and_can_be_hushed():
    program = (
        "import sys, torch; print(torch.cuda.device_count(), file=sys.stderr); "
        "torch.ones(3, device='cuda')"
    )
    loud = run(program, quiet=False, gpu="l4")
    # A launcher only counts: its ranks tell.
    assert loud.stderr.startswith("1\n")
    assert loud.stderr.count("at most small results are computed") == 1
    assert "NVIDIA L4" in loud.stderr
    fork = "import os\nif os.fork() == 0: {}; os._exit(0)\nos.wait(); {}"
    of_both = run(fork.format(program, program), quiet=False)
    assert of_both.stderr.count("at most small results are computed") == 1
    assert run(program, quiet=True, forked=True).stderr == "1\n"
    for launcher in "LOCAL_RANK", "SLURM_LOCALID":
        second = run(program, quiet=False, forked=True, env={launcher: "1"})
        assert second.stderr == "1\n"


@needs_torch
def test_events_tell_one_time_always_and_a_longer_one_where_rows_are_not_aligned():
    times = json.loads(output("""
import json, torch
def took(columns, dtype):
    a = torch.empty(2048, 768, device="cuda", dtype=dtype)
    b = torch.empty(768, columns, device="cuda", dtype=dtype)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    a @ b
    end.record()
    return begin.elapsed_time(end)
kinds = [(50257, torch.bfloat16), (50264, torch.bfloat16), (50257, torch.float32)]
print(json.dumps([[took(*kind) for kind in kinds] for _ in range(2)]))
""", forked=True))
    assert times[0] == times[1]
    odd, even, single = times[0]
    assert 2.5 < odd / even < 3.1
    assert 0 < single < even


@needs_library
def test_what_is_compiled_is_kept_apart_once(monkeypatch):
    def folder():
        return phantom.environment()["TORCHINDUCTOR_CACHE_DIR"]

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/a/b")
    assert folder() == "/a/b/memlab-phantom"
    for inner in (folder(), ""):  # a program on the phantom starts another there
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", inner)
        kept = folder()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", kept)
        assert folder() == kept


COMPILED = """
import torch
step = torch.compile(lambda x: (x * 2 + 1).relu().sum())
print(step(torch.randn(1000, device="cuda")).item())
"""


@needs_torch
def test_compiled_program_runs_uncompiled():
    assert output(COMPILED, env={"TORCH_COMPILE_DISABLE": "1"}) == "0.0"


@needs_torch
def test_compiled_program_is_compiled_and_allocates_as_such(tmp_path, monkeypatch):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    if not shutil.which("gcc"):
        pytest.skip("Triton needs gcc")
    program = """
import torch
def chain(x):
    for _ in range(4):
        x = (x * 2 + 1).relu()
    return x
x = torch.zeros(1 << 22, device="cuda")  # 16 MiB
def peak(step):
    torch.cuda.reset_peak_memory_stats()
    step(x)
    return (torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()) >> 20
compiled = torch.compile(chain)
compiled(x)
print(peak(chain), peak(compiled))
"""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    env = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    # An operation's result beside the one before and beside what that was made of,
    # against the one result of all of them.
    assert output(program, env=env).split() == ["48", "16"]
    # A place of its own: what was timed here is no good for a GPU.
    assert {path.name for path in tmp_path.iterdir()} == {"memlab-phantom", "triton"}
    # What Triton linked asks for the driver, wherever it is loaded next.
    (linked,) = (tmp_path / "triton").glob("*/cuda_utils*.so")
    assert b"libcuda.so.1\0" in linked.read_bytes()


# --- Symbols -------------------------------------------------------------------------


def exported():
    table = subprocess.run(
        ["nm", "-D", "--defined-only", phantom.LIBRARY],
        check=True, capture_output=True, text=True,
    ).stdout
    return {line.split()[-1] for line in table.splitlines()}


@needs_library
def test_every_listed_symbol_is_there():
    listing = (ROOT / "csrc" / "phantom" / "symbols.def").read_text()
    listed = set(re.findall(r"^XX\((\w+)\)$", listing, re.M))
    assert len(listed) > 700
    assert listed - exported() == set()


@needs_torch
def test_every_symbol_that_this_torch_wants_is_there():
    torch_folder = Path(importlib.util.find_spec("torch").origin).parent
    collected = subprocess.run(
        [sys.executable, ROOT / "csrc" / "phantom" / "collect_symbols.py", torch_folder],
        check=True, capture_output=True, text=True,
    ).stdout
    wanted = set(re.findall(r"^XX\((\w+)\)$", collected, re.M))
    assert len(wanted) > 500
    assert wanted - exported() == set()


@needs_library
@pytest.mark.parametrize("symbol", ["ncclCommMemStats", "cuMulticastCreate"])
def test_unanswered_symbol_ends_the_program_with_its_name(symbol):
    done = run(f"import ctypes; ctypes.CDLL(None).{symbol}()")
    assert done.returncode == -signal.SIGABRT
    assert f"{symbol} is not answered by the phantom device" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_torch
def test_cuda_abi_is_that_of_the_headers(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    packages = Path(importlib.util.find_spec("torch").origin).parent.parent
    triton = packages / "triton" / "backends" / "nvidia" / "include"
    toolkits = [triton, *packages.glob("nvidia/*/include")]
    toolkits = [folder for folder in toolkits if (folder / "cuda_runtime_api.h").exists()]
    if not toolkits or not (triton / "crt").exists():
        pytest.skip("neither triton nor a wheel of NVIDIA's brought CUDA's headers")
    for toolkit in toolkits:
        checked = subprocess.run(
            [compiler, "-std=c11", "-fsyntax-only", f"-I{ROOT / 'csrc' / 'phantom'}",
             f"-I{toolkit}", f"-I{triton}", ROOT / "tests" / "helpers" / "cuda_abi.c"],
            capture_output=True, text=True,
        )
        assert checked.returncode == 0, f"{toolkit}\n{checked.stderr}"


# --- What convolutions take ----------------------------------------------------------


@needs_torch
def test_convolutions_take_what_they_took_on_an_h200():
    """Bytes beside the result: measured ones, and those of another batch, reckoned by
    hand: x, y and w are turned to channels last, and 16 bytes more."""
    program = """
import json
import torch
from torch.ops import aten

def beside(x, w, stride, padding, dtype=torch.float32, mask=None):
    x, w = (torch.empty(s, dtype=dtype, device="cuda") for s in (x, w))
    arguments = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1
    y = aten.convolution(x, w, None, *arguments)
    result = y.nbytes
    if mask:
        result = sum(t.nbytes for t, m in zip((x, w), mask) if m)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    if mask:
        made = aten.convolution_backward(y, x, w, None, *arguments, [*mask, False])
    else:
        made = aten.convolution(x, w, None, *arguments)
    return torch.cuda.memory_stats()["requested_bytes.all.peak"] - before - result

stem = [64, 3, 7, 7], 2, 3
print(json.dumps([
    beside([32, 3, 224, 224], *stem),
    beside([24, 3, 224, 224], *stem),
    beside([32, 3, 224, 224], *stem, mask=(True, False)),
    beside([32, 3, 224, 224], *stem, mask=(False, True)),
    beside([32, 3, 224, 224], *stem, dtype=torch.float16),
    beside([32, 256, 14, 14], [256, 256, 3, 3], 1, 1),
]))
"""
    batch = 4 * (3 * 224 * 224 + 64 * 112 * 112)  # bytes of x and y of an image
    assert json.loads(output(program, forked=True)) == [
        122065680,
        24 * batch + 4 * 64 * 3 * 7 * 7 + 16,
        0,
        134522000,
        64250384,
        15204368,
    ]


# Batch, heads of queries, of keys, their lengths, width, causal; then what an H200's torch
# 2.11.0 allocated at the most in a workspace of the backward pass.
ATTENTION = [
    (4, 16, 16, 512, 512, 64, True, 8519936),
    (4, 16, 8, 512, 512, 64, True, 16908544),
    (4, 16, 1, 512, 512, 64, True, 16908544),
    (2, 32, 8, 1000, 1000, 128, True, 65792256),
    (2, 32, 8, 1000, 300, 64, False, 21555456),
    (1, 12, 3, 777, 777, 64, True, 4811440),
    (3, 24, 8, 640, 640, 96, True, 35574016),
    (2, 16, 4, 100, 260, 80, False, 3699456),
    (2, 12, 12, 300, 500, 64, False, 1872256),
]


@needs_torch
@pytest.mark.h200
def test_attention_of_cudnn_takes_what_an_h200_took():
    program = f"""
import json, torch
from torch.nn.attention import SDPBackend, sdpa_kernel

def most(batch, heads, of_keys, queries, keys, width, causal):
    def made(heads, length):
        size = batch, heads, length, width
        return torch.empty(size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    q, k, v = made(heads, queries), made(of_keys, keys), made(of_keys, keys)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=heads != of_keys)
    slope = torch.empty_like(out)
    torch.cuda.memory._record_memory_history("all", context=None, clear_history=True)
    torch.autograd.grad(out, (q, k, v), slope)
    [events] = torch.cuda.memory._snapshot()["device_traces"]
    # Behind the three gradients.
    return [e["size"] for e in events if e["action"] == "alloc"][3]

with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    print(json.dumps([most(*shape) for shape in {[shape[:-1] for shape in ATTENTION]}]))
"""
    said = output(program, gpu="h200", forked=True)
    assert json.loads(said) == [shape[-1] for shape in ATTENTION]


def test_workspaces_are_those_that_were_measured():
    made = subprocess.run(
        [
            sys.executable,
            ROOT / "csrc" / "phantom" / "collect_workspaces.py",
            *sorted((ROOT / "bench" / "results").glob("cudnn_h200_*.jsonl.gz")),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    checked_in = (ROOT / "csrc" / "phantom" / "libraries" / "workspaces.def").read_text()
    assert made.stdout == checked_in


# --- Peaks against an H200 -----------------------------------------------------------


@needs_torch
@pytest.mark.h200
@pytest.mark.parametrize(
    "name, allocated_percent, reserved_percent",
    # The ResNet's reserved peak depends on the workspace of every convolution.
    [("gpt2", 0.2, 1.0), ("llama", 0.2, 1.0), ("resnet", 0.2, 1.0)],
)
def test_peaks_are_those_of_an_h200(name, allocated_percent, reserved_percent):
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers==5.17.0")
    version = importlib.metadata.version("transformers")
    if version != "5.17.0":
        pytest.skip(f"measured with transformers 5.17.0, not {version}")
    truth = json.loads((DATA / "h200_peaks.json").read_text())["peaks"][name]
    said = output(PROGRAMS / f"{name}.py", forked=True)
    got = json.loads(said.splitlines()[-1])
    for key, percent in (
        ("allocated_bytes", allocated_percent),
        ("reserved_bytes", reserved_percent),
    ):
        error = 100 * (got[key] - truth[key]) / truth[key]
        if percent is not None:
            assert abs(error) <= percent, f"{key}: {error:+.3f} %"
