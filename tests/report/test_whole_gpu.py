"""The account of the whole GPU: its lines against torch, the device and a made-up driver."""

import importlib.metadata
import importlib.util
import json
import re
import resource

import pytest
from preload import shared_library

import memlab

pytestmark = pytest.mark.cuda

# Whether torch's own counter of pinned memory in use falls when that is freed.
COUNTS_USE = not (
    importlib.util.find_spec("torch")
    and re.match(r"2\.([6-9]|1[0-2])\.", importlib.metadata.version("torch"))
)

PROGRAM = """
import json, torch, memlab
snapshot = memlab.MemorySnapshot().start()
x = torch.nn.Parameter(torch.zeros(3 << 20, device="cuda"))
optimizer = torch.optim.SGD([x], lr=0.1)
for _ in range(3):
    (x * 2).sum().backward()
    optimizer.step()
pinned = torch.zeros(1 << 20).pin_memory()
stats = torch.cuda.memory_stats()
free, total = torch.cuda.mem_get_info()
try:
    now = memlab.ledger()
except memlab.Error as error:
    now = str(error)
snapshot.stop()
print(json.dumps({
    "now": now, "peak": snapshot.peak(0), "text": snapshot.summary(),
    "notes": snapshot.data().notes(), "device": total - free,
    "allocated": stats["allocated_bytes.all.current"],
    "reserved": stats["reserved_bytes.all.current"],
    "peak_allocated": stats["allocated_bytes.all.peak"],
}))
"""

# Its own figures stand in MADE_*; a name that is not there is a function that fails.
FAKE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long bytes;
struct memory { unsigned version; bytes total, reserved, free, used; };
struct process { unsigned pid; bytes used; unsigned instances[2]; };

static bytes made(const char *name) { return strtoull(getenv(name), NULL, 10); }

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetMemoryInfo(void *device, void *out) { (void)device, (void)out; return 3; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = device;
    return strncmp(uuid, "GPU-", 4);
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *out)
{
    (void)device;
    *out = (struct memory){out->version, 100 << 20, 7, 0, made("MADE_USED")};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct process *out)
{
    (void)device;
    unsigned self = getenv("MADE_HIDDEN") ? 999999 : (unsigned)getpid();
    bytes own = getenv("MADE_UNAVAILABLE") ? (bytes)-1 : made("MADE_OWN");
    *count = 2;
    out[0] = (struct process){1, made("MADE_OTHER"), {0, 0}};
    out[1] = (struct process){self, own, {0, 0}};
    return 0;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count,
                                             struct process *out)
{
    (void)device;
    *count = 2;
    out[0] = (struct process){1, made("MADE_OTHER"), {0, 0}};
    out[1] = (struct process){2, made("MADE_SCREEN"), {0, 0}};
    return 0;
}

__attribute__((visibility("default"), optimize("O2"))) void *
dlopen(const char *name, int mode)
{
    void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    if (name != NULL && strncmp(name, "libnvidia-ml.so", 15) == 0) {
        if (getenv("MADE_ABSENT"))
            return NULL;
        name = getenv("MADE_PATH");
    }
    return real(name, mode);
}
"""

MIB = 1 << 20
MADE = {"USED": 64 * MIB, "OWN": 40 * MIB, "OTHER": 11 * MIB, "SCREEN": 5 * MIB}


def run(phantom_run, **env):
    done = phantom_run(PROGRAM, env={k: str(v) for k, v in env.items()})
    return json.loads(done.stdout.splitlines()[-1])


def total(lines):
    return sum(n for n in lines.values() if n is not None)


@pytest.fixture
def made(tmp_path, device_environment):
    """The environment of a program whose driver says what MADE does."""
    source = tmp_path / "fake.c"
    source.write_text(FAKE)
    library = shared_library(source, tmp_path / "fake.so")
    preload = f"{library}:{device_environment.get('LD_PRELOAD', '')}"
    figures = {f"MADE_{name}": value for name, value in MADE.items()}
    return {"LD_PRELOAD": preload, "MADE_PATH": library, **figures}


def test_lines_add_up_to_the_device(phantom_run):
    said = run(phantom_run)
    lines = said["now"]["lines"]
    assert said["now"]["used_bytes"] == said["device"] == total(lines)
    assert lines["torch_allocated_bytes"] == said["allocated"]
    assert lines["torch_cached_bytes"] == said["reserved"] - said["allocated"]
    assert lines["other_processes_bytes"] == 0
    assert lines["unknown_bytes"] == 0


def test_account_at_the_peak(phantom_run):
    said = run(phantom_run)
    account = said["peak"]["gpu"]
    lines = account["lines"]
    assert lines["torch_allocated_bytes"] == said["peak_allocated"]
    assert account["used_bytes"] == total(lines) == said["device"]
    assert account["moved_bytes"] == 0
    assert account["after_us"] >= 0
    assert "The whole GPU at the peak: " in said["text"]


def test_steps_are_sampled(phantom_run):
    said = run(phantom_run)
    kinds = [n["kind"] for n in said["notes"] if n["kind"] in ("step", "gpu")]
    # As CUDA is initialised, after each of three steps, and as the recording is read.
    assert kinds == ["gpu", *["step", "gpu"] * 3, "gpu"]


def test_host_memory(phantom_run):
    said = run(phantom_run)
    host = said["now"]["host"]
    assert 100 * MIB < host["rss_bytes"] < 100 << 30
    assert host["pinned_allocated_bytes"] == (4 * MIB if COUNTS_USE else None)
    assert host["pinned_reserved_bytes"] == 4 * MIB
    assert said["peak"]["host"]["rss_bytes"] > 100 * MIB


PINNED = """
import json, torch, memlab
torch.cuda.init()
snapshot = memlab.MemorySnapshot().start()
x = torch.nn.Parameter(torch.zeros(3 << 20, device="cuda"))
told = []
for copied in (False,) * 3 + (True,) * 3:
    batch = torch.zeros(1 << 20, pin_memory=True)
    if copied:
        batch.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
    del batch
    told.append(memlab.ledger()["host"])
kept = torch.zeros(2 << 20, pin_memory=True)
told.append(memlab.ledger()["host"])
torch.optim.SGD([x], lr=0.1).step()
snapshot.stop()
print(json.dumps({"told": told, "text": snapshot.summary()}))
"""


def test_pinned_memory_that_was_freed_is_not_in_use(phantom_run):
    """A block of 4 MiB that each round takes again, whether it was free at once or when a
    copy had ended, then one of 8 MiB."""
    said = json.loads(phantom_run(PINNED).stdout)
    assert [host["pinned_reserved_bytes"] for host in said["told"]] == [
        *[4 * MIB] * 6, 12 * MIB
    ]  # fmt: skip
    # Of a block that a copy used torch sees at the next request that the copy has ended.
    in_use = [0, 0, 0, 4 * MIB, 4 * MIB, 4 * MIB, 8 * MIB] if COUNTS_USE else [None] * 7
    assert [host["pinned_allocated_bytes"] for host in said["told"]] == in_use
    lines = [line.split() for line in said["text"].splitlines()]
    assert ["12.0", "MiB", "pinned", "by", "torch,", "with", "its", "cache"] in lines
    of_use = ["8.00", "MiB", "pinned", "by", "torch,", "in", "use"]
    assert (of_use in lines) == COUNTS_USE
    assert ("torch before 2.13 counts it wrongly" in said["text"]) == (not COUNTS_USE)


def test_resident_set_is_the_systems(torch):
    from memlab import _core

    snapshot = memlab.MemorySnapshot(source="cpu").start()
    try:
        _core.sample(False)
        note = [n for n in snapshot.data().notes() if n["kind"] == "host"][-1]
    finally:
        snapshot.stop()
    with open("/proc/self/status") as file:
        (now,) = (int(w.split()[1]) * 1024 for w in file if w.startswith("VmRSS:"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # The kernel counts pages of each thread in batches.
    assert abs(note["values"][0] - now) < 8 * MIB
    assert note["values"][0] <= most + 8 * MIB


def test_other_processes(phantom_run, made):
    said = run(phantom_run, **made)
    lines = said["now"]["lines"]
    assert said["now"]["used_bytes"] == MADE["USED"] == total(lines)
    assert said["now"]["driver_reserve_bytes"] == 7
    # One computes and draws: it counts once.
    assert lines["other_processes_bytes"] == 16 * MIB
    outside = lines["outside_at_start_bytes"] + lines["outside_first_step_bytes"]
    assert outside + lines["outside_later_bytes"] == 40 * MIB - said["reserved"]
    assert lines["driver_bytes"] == 8 * MIB
    assert lines["unknown_bytes"] == 0


@pytest.mark.parametrize("why", ["HIDDEN", "UNAVAILABLE"])
def test_process_that_the_driver_does_not_tell(phantom_run, made, why):
    said = run(phantom_run, **made, **{f"MADE_{why}": 1})
    lines = said["now"]["lines"]
    assert lines["outside_later_bytes"] is None
    assert lines["driver_bytes"] is None
    others = None if why == "HIDDEN" else 16 * MIB
    assert lines["other_processes_bytes"] == others
    assert lines["unknown_bytes"] == 64 * MIB - said["reserved"] - (others or 0)
    assert "Not reported by the driver" in said["text"]


def test_no_management_library(phantom_run, made):
    said = run(phantom_run, **made, MADE_ABSENT=1)
    assert "libnvidia-ml.so.1" in said["now"]
    assert said["peak"]["gpu"] is None
    assert "libnvidia-ml.so.1" in said["peak"]["gpu_reason"]
    assert "The whole GPU was not sampled" in said["text"]
    # Said once, not after every step.
    assert len([n for n in said["notes"] if n["kind"] == "gpu"]) == 1


def test_devices_by_identity(phantom_run):
    """CUDA_VISIBLE_DEVICES turns the order around; the driver's library does not."""
    program = """
import torch, memlab
a = torch.zeros(8 << 20, device="cuda:0")
b = torch.zeros(64 << 20, device="cuda:1")
for i in range(2):
    free, total = torch.cuda.mem_get_info(i)
    assert memlab.ledger(i)["used_bytes"] == total - free, i
"""
    from memlab._native import devices

    if devices.gpu_present():
        pytest.skip("needs two devices, which the phantom has")
    phantom_run(
        program, env={"MEMLAB_PHANTOM_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1,0"}
    )


def test_nothing_before_cuda(phantom_run):
    phantom_run(
        """
import torch, memlab
try:
    memlab.ledger()
except memlab.Error as error:
    assert "not initialised" in str(error)
else:
    raise SystemExit("no error")
assert not torch.cuda.is_initialized()
"""
    )
