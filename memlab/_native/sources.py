"""Chooses the source of memory events, and makes it ready."""

from __future__ import annotations

import inspect
import sys

from memlab import _core
from memlab._errors import Error
from memlab._native import backends, devices
from memlab._native import bridge as _bridge
from memlab._text import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Ledger, Stats

# Bits of ml_recording.keys: optional keys of the snapshot schema.
_KEY_COMPILE_CONTEXT = 0x01
_KEY_USER_METADATA = 0x02
_KEY_POOL_ID = 0x04
_KEY_EXTERNAL_ANNOTATIONS = 0x08
_KEY_ALLOCATOR_SETTINGS = 0x10
_KEY_HOST = 0x20
_KEY_INTERNAL_METADATA = 0x40

_queued = set()
# Sources whose devices exist.
_there = set()


def default() -> str:
    """The source to record if none is named: "cuda" with a GPU and a CUDA build of
    torch, else "cpu".
    """
    import torch

    if torch.version.cuda is None:
        return "cpu"
    return "cuda" if torch.cuda.is_initialized() or devices.gpu_present() else "cpu"


def check(name: object) -> None:
    """Raises memlab.Error unless NAME is a source."""
    if name not in ("cuda", "cpu", "script"):
        raise Error(f"unknown source {name!r}: expected 'cuda', 'cpu' or 'script'")


def ensure(name: str) -> None:
    """Makes the source NAME ready to record.

    Raises memlab.Error, with what to do, if it is not available.
    """
    if name == "script":
        if not _core.has_source("script"):
            _core.Script()
        return
    check(name)
    bridge = _bridge.load()
    if not _core.has_source(name):
        raise Error(
            f"the {name} source is not available: {backends.backends()[name]['reason']}"
        )
    _core.use_tensors(bridge._tensors)
    if name == "cuda":
        import torch

        if not torch.cuda.is_initialized() and not devices.gpu_present():
            raise Error(
                "no GPU here: run the program with `memlab phantom` for a stand-in, or "
                "record the host's memory with memlab.MemorySnapshot(source='cpu')"
            )
        _check_allocator(torch.cuda.get_allocator_backend())
        _core.use_native_stacks(bridge._native)
        if devices.under_phantom():
            bridge.watch_values()
        if not _initialising(torch) and "cuda" not in _queued:
            # Runs when the program itself initialises CUDA, never before: a child
            # forked after that could not use CUDA.
            _queued.add("cuda")
            torch.cuda._lazy_call(_cuda_ready)
            bridge.watch_cuda(_cuda_ready)


def _initialising(torch):
    """Whether the program has initialised CUDA, or is doing so in this call.  In the
    latter case torch holds the lock of its lazy calls, and a recording begins as soon
    as it is started.
    """
    return torch.cuda.is_initialized() or hasattr(torch.cuda._tls, "is_initializing")


def _check_allocator(backend):
    """Raises memlab.Error if torch's allocator reports no events.  The recorder would
    find out only after CUDA's initialisation.
    """
    if backend == "native":
        return
    if backend == "cudaMallocAsync":
        raise Error(
            "torch runs with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, an "
            "allocator that reports no memory events; remove backend:cudaMallocAsync "
            "from PYTORCH_CUDA_ALLOC_CONF to record"
        )
    raise Error(
        f"torch runs with the {backend} allocator, which reports no memory events; "
        "record without torch.cuda.memory.change_current_allocator()"
    )


def _cuda_ready():
    # This runs inside torch's own initialisation, which no failure here may reach.
    try:
        # The first report, from Python or C++, counts.
        if "cuda" in _there:
            return
        _there.add("cuda")
        _core.ready("cuda")
        _core.sample(True)
    except Exception as error:
        terminal.say(f"memlab: recording could not begin: {error}", sys.stderr)


def stats(device: object = None) -> Stats:
    """The recorder's own counters of one device.

    device: an int, a torch.device, a string such as "cuda:1" or "cpu", or None for the
    current CUDA device (the cpu if memlab records that).

    Returns a dict of ints.  Counted since the process began, over all recordings:
    events, dropped_events, lost_stacks, lost_names (of all devices: how often an owner,
    a module, an autograd node or the user's metadata had no room for its name),
    inconsistencies (events that contradict the memory before them).  Now: lane_events
    (in memory), lane_bytes (their memory, without stacks), and in bytes
    allocated_bytes, active_bytes, requested_bytes, reserved_bytes.  Each of these four
    also with "_peak".  A GPU's peaks count from the start of the first of the current
    recordings, the cpu's from the start of the process.  A recording's own losses are
    in its counts().  Raises ValueError if nothing was recorded there.
    """
    source, index = parse_device(device)
    return _core.stats(source, index)


def stats_of_all(source: str) -> dict[int, Stats]:
    """As stats(), of each device of SOURCE on which something was recorded, by its index.
    Initialises nothing.
    """
    count = 1
    if source == "cuda":
        torch = sys.modules.get("torch")
        known = torch is not None and torch.cuda.is_initialized()
        count = torch.cuda.device_count() if known else 0
    found = {}
    for index in range(count):
        try:
            found[index] = _core.stats(source, index)
        except ValueError:
            continue
    return found


def ledger(device: object = None) -> Ledger:
    """The use of a whole GPU now, in lines that sum to the device's used bytes.

    device: an int, a torch.device, a string such as "cuda:1", or None for the current
    CUDA device.

    Returns a dict, all in bytes: device (the index), used_bytes, total_bytes,
    driver_reserve_bytes (in the total, but not in used), lines, and host, a dict of
    rss_bytes, pinned_allocated_bytes and pinned_reserved_bytes.  The lines, described
    in docs/REPORT.md, are torch_allocated_bytes, torch_pending_free_bytes,
    torch_cached_bytes, outside_at_start_bytes, outside_first_step_bytes,
    outside_later_bytes, other_processes_bytes, driver_bytes and unknown_bytes.  They
    are ints, or None for bytes that the driver does not report, which are then in
    unknown_bytes.

    Asks the driver, which takes about 50 microseconds.  No recording is needed; with
    one, the lines outside torch tell their time.  Raises memlab.Error if CUDA is not
    initialised or the driver's management library NVML is missing, ValueError for an
    unknown device.
    """
    source, index = "cuda", None
    if device is not None:
        source, index = parse_device(device)
    if source != "cuda":
        raise ValueError(f"{device!r} is not a GPU; write for example 'cuda:0'")
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        raise Error("CUDA is not initialised in this process; use the GPU first")
    ensure("cuda")
    return _core.ledger("cuda", torch.cuda.current_device() if index is None else index)


def parse_device(device) -> tuple[str, int]:
    """(source, index) of a device in any of torch's ways to name one."""
    if isinstance(device, tuple):
        return device
    if device is None:
        if _core.has_source("cuda") and default() == "cuda":
            import torch

            return "cuda", torch.cuda.current_device()
        return ("cpu", 0) if _core.has_source("cpu") else ("script", 0)
    if isinstance(device, int) and not isinstance(device, bool) and device >= 0:
        return "cuda", device
    text = str(device)
    kind, _, index = text.partition(":")
    if kind not in ("cuda", "cpu", "script") or (index and not index.isdigit()):
        raise ValueError(f"{device!r} is not a device; write for example 'cuda:0'")
    if kind == "cuda" and not index:
        import torch

        return kind, torch.cuda.current_device()
    return kind, int(index or 0)


def dialect_keys() -> int:
    """The optional keys that the running torch's snapshots have, as a bit mask: by the
    functions and parameters of torch that came with them (docs/TORCH_VERSIONS.md)."""
    keys = _KEY_ALLOCATOR_SETTINGS | _KEY_EXTERNAL_ANNOTATIONS
    torch = sys.modules.get("torch")
    if torch is None:
        return keys | _KEY_COMPILE_CONTEXT | _KEY_USER_METADATA
    memory = torch.cuda.memory
    record = getattr(memory, "_record_memory_history_impl", None)
    parameters = inspect.signature(record).parameters if record else ()
    for name, key in (
        ("compile_context", _KEY_COMPILE_CONTEXT),
        ("record_pinned_host_memory", _KEY_HOST),
    ):
        keys |= key if name in parameters else 0
    if hasattr(memory, "_set_memory_metadata"):
        keys |= _KEY_USER_METADATA
    if hasattr(memory, "_annotate_tensor"):
        keys |= _KEY_INTERNAL_METADATA
    # Nothing that Python sees came with it.
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12):
        keys |= _KEY_POOL_ID
    return keys
