"""The figures of a GPU's memory that a training run logs.

Owns memlab.metrics() and memlab.MemoryMonitor.  torch's counters are read, never reset.
"""

from __future__ import annotations

import operator
import sys
import time

from memlab import _core
from memlab._errors import Error, check_count, tell
from memlab._monitor.sinks import Sinks, index_of
from memlab._native import bridge, sources
from memlab._record.other_trainers import OtherTrainers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

    from memlab._core import _Path

# Like the sampler of recordings, queries of the driver take at most a thousandth of the
# time.
_REST = 1000

# torch's name, by memlab's.
_BYTES = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "inactive_split": "inactive_split_bytes",
    "reserved": "reserved_bytes",
}

# A failed query of the driver counts as this long.
_REFUSED_SECONDS = 0.01

_accounts = {}  # index of a GPU -> (time of the next query, unexplained bytes or None)


def metrics(device: object = None) -> dict[str, float]:
    """The memory of a GPU now, as figures to log; takes about ten microseconds.

    device: an int, a torch.device, a string such as "cuda:1", or None for the current
    CUDA device.

    The keys, in bytes, of the whole device and of torch's allocator in this process:

    - memory/allocated_bytes, memory/active_bytes, memory/reserved_bytes and
      memory/inactive_split_bytes: as in torch.cuda.memory_stats().
    - The same as memory/peak_...: torch's peaks, since the program began or last reset them.
      memlab never resets them.
    - memory/fragmentation: inactive_split_bytes / reserved_bytes, 0 to 1.  This share of torch's
      memory is free, but in segments that are partly in use, so that neither empty_cache() nor
      a larger allocation can have it.
    - memory/alloc_retries, memory/ooms: how often torch gave back its cache to serve a request,
      and how often that failed.
    - memory/unexplained_bytes: used bytes of the whole GPU that memlab.ledger() cannot explain.
      Missing if the driver does not report them, or if memlab's bridge to this torch is not yet
      built; the first recording builds it.  Queries of the driver take at most a thousandth of
      the time; between queries, the figure is the previous one.

    Exact also while nothing is recorded.  Empty before the program uses CUDA, which
    memlab never initialises, and while a Courtesy has the CUDA context.  Raises
    ValueError for an invalid GPU.
    """
    index = index_of(device)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or _core.context_away():
        return {}
    if index is None:
        index = torch.cuda.current_device()
    elif index >= torch.cuda.device_count():
        raise ValueError(f"there is no cuda:{index} here")
    stats = torch.cuda.memory_stats_as_nested_dict(index)
    answer = {}
    for name, field in _BYTES.items():
        figures = stats[field]["all"]
        answer[f"memory/{name}_bytes"] = figures["current"]
        answer[f"memory/peak_{name}_bytes"] = figures["peak"]
    reserved = answer["memory/reserved_bytes"]
    free = answer["memory/inactive_split_bytes"]
    answer["memory/fragmentation"] = free / reserved if reserved else 0.0
    answer["memory/alloc_retries"] = stats["num_alloc_retries"]
    answer["memory/ooms"] = stats["num_ooms"]
    unexplained = _unexplained(index)
    if unexplained is not None:
        answer["memory/unexplained_bytes"] = unexplained
    return answer


def _unexplained(index):
    again, value = _accounts.get(index, (0.0, None))
    if time.monotonic() < again:
        return value
    began, value = time.monotonic(), None
    try:
        if _has_bridge():
            sources.ensure("cuda")
            began = time.monotonic()
            value = _core.ledger("cuda", index)["lines"]["unknown_bytes"]
    except (Error, ValueError):
        # No management library, or an unsupported allocator: mostly permanent.
        began -= _REFUSED_SECONDS
    ended = time.monotonic()
    _accounts[index] = ended + _REST * (ended - began), value
    return value


def _has_bridge():
    """Whether the bridge exists.  Building it takes a minute, which only a recording
    may spend.
    """
    if _core.has_source("cuda"):
        return True
    return any(path.exists() for path in bridge.built_paths(bridge.bridge_key()))


class MemoryMonitor(OtherTrainers):
    """Logs the figures of memlab.metrics() from your own training loop.

        with memlab.MemoryMonitor(tensorboard="runs/1", prometheus=9400) as monitor:
            for batch in loader:
                train(batch)
                monitor.step()

    every: reads the figures at every so many calls of step(), beginning with the first.
    device: as in memlab.metrics(); None for the current GPU of each call.
    tensorboard: a folder, in which each of several ranks has one of its own, or a
        SummaryWriter, which you close.
    prometheus: a port of 127.0.0.1 at which Prometheus finds the last figures under /metrics.
        Each further rank of a machine is one port above; 0 means any free port, which `address`
        tells.  Or "HOST:PORT" for another address.  There is no password: use no address that
        untrusted machines reach.
    opentelemetry: True for gauges of OpenTelemetry's global meter provider, or a Meter.  Its
        reader asks for the last figures when it exports: a step costs nothing.
    fleet: a folder of Parquet files, to which a row a step is added, as docs/FLEET.md
        says; with run, the run's name (None: the day and time), and labels, what to group runs
        by.  Rows are written every 1,024 steps, and by close(): a killed job loses the last.

    Raises ValueError, TypeError or memlab.Error for an invalid argument.  A later
    failure ends the affected sink with a warning, never the program.
    """

    def __init__(
        self,
        *,
        every: int = 1,
        device: object = None,
        tensorboard: Any = None,
        prometheus: int | str | None = None,
        opentelemetry: Any = None,
        fleet: _Path | None = None,
        run: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        check_count(every, 1, "every")
        self._every = operator.index(every)
        self._device = device
        self._calls = 0
        self._works = True
        self._sinks = Sinks(
            tensorboard,
            prometheus,
            device=device,
            opentelemetry=opentelemetry,
            fleet=fleet,
            run=run,
            labels=labels,
        )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint; None without one, and before the first
        figures.
        """
        return self._sinks.address

    def step(self, step: int | None = None) -> dict[str, float]:
        """Reads the figures, passes them to the sinks, and returns them.

        step: the number to log them under; None: the number of the call, from 0.
        Returns an empty dict if this call is not one of `every`, and before CUDA is
        used.  Raises nothing.
        """
        number = self._calls
        self._calls += 1
        if number % self._every or not self._works:
            return {}
        try:
            figures = metrics(self._device)
        except Exception as error:
            self._works = False
            tell(f"the GPU's memory is no longer monitored: {error}")
            return {}
        self._sinks.write(figures, number if step is None else step)
        return figures

    def close(self) -> None:
        """Flushes TensorBoard, and ends the endpoint.  Raises nothing."""
        self._sinks.close()

    def __enter__(self) -> MemoryMonitor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
