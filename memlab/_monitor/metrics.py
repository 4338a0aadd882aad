"""The figures of a GPU's memory that a training run logs, and their destinations.

Owns memlab.metrics(), memlab.MemoryMonitor, and the two sinks that need no trainer:
TensorBoard and an endpoint for Prometheus.  torch's counters are read, never reset.
"""

from __future__ import annotations

import operator
import os
import sys
import time

from memlab import _core
from memlab._errors import Error, check_count, tell
from memlab._native import bridge, sources
from memlab._record.other_trainers import OtherTrainers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

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
    index = _index(device)
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


def _index(device):
    """The index of a GPU in any of torch's ways to name one; None for the current one:
    a query of torch would initialise CUDA.
    """
    if device is None or str(device) == "cuda":
        return None
    source, index = sources.parse_device(device)
    if source != "cuda":
        raise ValueError(f"device must be a GPU, as 'cuda:0', not {device!r}")
    return index


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
    ) -> None:
        check_count(every, 1, "every")
        self._every = operator.index(every)
        self._device = device
        self._calls = 0
        self._works = True
        self._sinks = Sinks(tensorboard, prometheus, device=device)

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


class Sinks:
    """Destinations of figures beside a trainer's logger, by MemoryMonitor's options.

    Raises ValueError, TypeError or memlab.Error for an invalid option.
    """

    def __init__(
        self,
        tensorboard: Any = None,
        prometheus: int | str | None = None,
        *,
        device: object = None,
    ) -> None:
        self._index = _index(device)
        self._parts = []
        self._prometheus = None
        self._pid = os.getpid()
        if tensorboard is not None:
            self._parts.append(_TensorBoard(tensorboard))
        if prometheus is not None:
            self._prometheus = _Prometheus(prometheus)
            self._parts.append(self._prometheus)

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the endpoint for Prometheus; None if there is none."""
        return None if self._prometheus is None else self._prometheus.address

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Passes METRICS, by name, to every sink.  Raises nothing: a sink that fails is
        reported once and then left out.
        """
        if metrics:
            self._each(
                lambda part: part.write(metrics, step, self._index),
                "metrics are no longer written to",
            )

    def close(self) -> None:
        """Ends every sink.  Raises nothing."""
        self._each(lambda part: part.close(), "the last metrics may be missing in")
        self._parts = []

    def _each(self, act, what):
        if os.getpid() != self._pid:
            # A forked child has neither TensorBoard's thread, for which it would wait,
            # nor its own socket.
            return
        for part in list(self._parts):
            try:
                act(part)
            except Exception as error:
                self._parts.remove(part)
                tell(f"{what} {part.name}: {error}")


class _TensorBoard:
    name = "TensorBoard"

    def __init__(self, where):
        self._writer = self._folder = None
        if hasattr(where, "add_scalar"):
            self._writer = where
            return
        try:
            self._folder = os.path.abspath(os.fspath(where))
        except TypeError:
            raise TypeError(
                f"tensorboard must be a folder or a SummaryWriter, not {where!r}"
            ) from None
        from importlib.util import find_spec

        if find_spec("tensorboard") is None:
            raise Error(
                "tensorboard= needs the package tensorboard: pip install tensorboard"
            )

    def write(self, metrics, step, index):
        if self._writer is None:
            # Only now: the rank may have been unknown before.
            from torch.utils.tensorboard import SummaryWriter

            from memlab._files import names

            ranks = names.ranks()
            folder = self._folder
            if ranks["world_size"] > 1:
                folder = os.path.join(folder, f"rank{ranks['rank']}")
            self._writer = SummaryWriter(folder)
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)

    def close(self):
        if self._writer is not None:
            self._writer.flush() if self._folder is None else self._writer.close()


class _Prometheus:
    name = "Prometheus"

    def __init__(self, where):
        from memlab._serve import prometheus as _prometheus

        self._where = _prometheus.parse_address(where)
        self._endpoint = None

    @property
    def address(self):
        return None if self._endpoint is None else self._endpoint.address

    def write(self, metrics, step, index):
        from memlab._files import names
        from memlab._serve import prometheus as _prometheus

        ranks = names.ranks()
        if self._endpoint is None:
            host, port = self._where
            port += ranks["local_rank"] if port else 0
            try:
                self._endpoint = _prometheus.Endpoint(host, port)
            except (OSError, OverflowError) as error:
                raise Error(
                    f"{host}:{port} cannot be opened ({error}): give prometheus= another port"
                ) from None
        if index is None:
            index = sys.modules["torch"].cuda.current_device()
        labels = {"rank": str(ranks["rank"]), "device": str(index)}
        self._endpoint.publish({**metrics, "step": step}, labels)

    def close(self):
        if self._endpoint is not None:
            self._endpoint.close()
