"""The figures of a GPU's memory that a training run logs, and where they go.

Owns memlab.metrics(), memlab.MemoryMonitor, and the two sinks that need no trainer:
TensorBoard and an endpoint that Prometheus reads.  Torch's counters are read, never reset.
"""

from __future__ import annotations

import operator
import os
import sys
import time

from memlab import _core
from memlab._errors import Error, check_count, tell
from memlab._native import bridge, sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

# As the sampler of recordings: the driver is asked in a thousandth of the time at most.
_REST = 1000

# By our name, torch's.
_BYTES = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "inactive_split": "inactive_split_bytes",
    "reserved": "reserved_bytes",
}

# Where the driver cannot be asked, that counts as having taken so long.
_REFUSED_SECONDS = 0.01

_accounts = {}  # index of a GPU -> (when to ask again, unexplained bytes or None)


def metrics(device: object = None) -> dict[str, float]:
    """The memory of a GPU now, as figures to log: some ten microseconds.

    device: an int, a torch.device, a string such as "cuda:1", or None for the current
    CUDA device.

    The keys, in bytes, of the whole device and of torch's allocator in this process:

    - memory/allocated_bytes, memory/active_bytes, memory/reserved_bytes and
      memory/inactive_split_bytes: as in torch.cuda.memory_stats().
    - The same as memory/peak_...: torch's peaks, since the program began or last reset
      them.  memlab never does.
    - memory/fragmentation: inactive_split_bytes / reserved_bytes, the share of torch's
      memory that is free but in segments that are partly in use, so that neither
      empty_cache() nor a larger allocation can have it; 0 to 1.
    - memory/alloc_retries, memory/ooms: how often torch gave its cache back to allocate
      at all, and how often that did not help.
    - memory/unexplained_bytes: what is used of the whole GPU and memlab.ledger() cannot
      explain.  Missing where the driver does not tell, or memlab's bridge to this torch
      is still to be built, as the first recording does.  The driver is asked for it in a
      thousandth of the time at most: between, this figure is the one before.

    Exact also while nothing is recorded.  Empty before the program uses CUDA, which
    memlab never makes it do, and while a Courtesy has the CUDA context.  Raises ValueError
    for what is no GPU.
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
    """The index of a GPU in any of torch's ways to name one; None for the current one,
    which asking torch for would initialise CUDA."""
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
        # No management library, an allocator that cannot be asked: nor later, mostly.
        began -= _REFUSED_SECONDS
    ended = time.monotonic()
    _accounts[index] = ended + _REST * (ended - began), value
    return value


def _has_bridge():
    """Whether the bridge is there; to build it takes a minute, which is for who records."""
    if _core.has_source("cuda"):
        return True
    return any(path.exists() for path in bridge.built_paths(bridge.bridge_key()))


class MemoryMonitor:
    """Logs the figures of memlab.metrics() from a training loop of your own.

        with memlab.MemoryMonitor(tensorboard="runs/1", prometheus=9400) as monitor:
            for batch in loader:
                train(batch)
                monitor.step()

    every: reads at every so many calls of step(), from the first on.
    device: as in memlab.metrics(); None for the current GPU of each call.
    tensorboard: a folder, in which each rank of several has one of its own, or a
        SummaryWriter, which is yours to close.
    prometheus: a port of 127.0.0.1 at which Prometheus finds the last figures under
        /metrics, each further rank of a machine one port above; 0 for any free port,
        which `address` then tells; or "HOST:PORT" for another address.  It has no
        password: give it no address that untrusted machines reach.

    Raises ValueError, TypeError or memlab.Error for an argument that makes no sense.  What
    goes wrong later ends the part concerned with a warning, never the program.
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
        """Host and port of the endpoint; None without one, and before the first figures."""
        return self._sinks.address

    def step(self, step: int | None = None) -> dict[str, float]:
        """Reads the figures, gives them to the sinks, and returns them.

        step: the number to log them under; None for that of the call, from 0.  Returns an
        empty dict where this call is not one of `every`, and before CUDA is used.  Raises
        nothing.
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
        """Writes what TensorBoard has not yet, and ends the endpoint.  Raises nothing."""
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
    """Where figures go that no trainer's logger takes, as MemoryMonitor's options say.

    Raises ValueError, TypeError or memlab.Error for an option that makes no sense.
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
        """Host and port of the endpoint for Prometheus; None where it is not there."""
        return None if self._prometheus is None else self._prometheus.address

    def write(self, metrics: dict[str, float], step: int) -> None:
        """Gives METRICS, by their names, to every sink.  Raises nothing: a sink that
        fails is told once and left out from then on."""
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
            # A forked child has neither TensorBoard's thread, for which it would wait, nor
            # a socket of its own.
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
            # Only now: the rank may not have been known.
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
