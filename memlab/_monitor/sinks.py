"""The destinations of a monitor's figures that need no trainer: TensorBoard, an endpoint for
Prometheus, OpenTelemetry, and a fleet's folder of Parquet files.
"""

from __future__ import annotations

import datetime
import os
import sys
import time

from memlab._errors import Error, tell
from memlab._native import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from memlab._core import _Path

__all__ = ["Sinks", "index_of"]


def index_of(device):
    """The index of a GPU in any of torch's ways to name one; None for the current one:
    a query of torch would initialise CUDA.
    """
    if device is None or str(device) == "cuda":
        return None
    source, index = sources.parse_device(device)
    if source != "cuda":
        raise ValueError(f"device must be a GPU, as 'cuda:0', not {device!r}")
    return index


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
        opentelemetry: Any = None,
        fleet: _Path | None = None,
        run: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._index = index_of(device)
        self._parts = []
        self._prometheus = None
        self._pid = os.getpid()
        if tensorboard is not None:
            self._parts.append(_TensorBoard(tensorboard))
        if prometheus is not None:
            self._prometheus = _Prometheus(prometheus)
            self._parts.append(self._prometheus)
        if opentelemetry is not None:
            self._parts.append(_OpenTelemetry(opentelemetry))
        if fleet is not None:
            self._parts.append(_Fleet(fleet, run, labels))
        elif run is not None or labels is not None:
            raise ValueError("run and labels are of the rows in a fleet's folder: give fleet too")

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


class _OpenTelemetry:
    name = "OpenTelemetry"

    def __init__(self, meter):
        try:
            from opentelemetry import metrics as api
        except ImportError as error:
            raise Error(
                f"opentelemetry= needs OpenTelemetry ({error}): pip install opentelemetry-sdk"
            ) from None
        if meter is True:
            meter = api.get_meter("memlab")
        elif not hasattr(meter, "create_observable_gauge"):
            raise TypeError(f"opentelemetry must be True or a Meter, not {meter!r}")
        self._observe = api.Observation
        self._meter = meter
        self._last = {}, {}
        self._made = set()

    def _gauge(self, key):
        def observe(_):
            figures, attributes = self._last
            if key in figures:
                yield self._observe(figures[key], attributes)

        name = "memlab." + key.replace("/", ".")
        whole = key.endswith("_bytes")
        name = name[: -len("_bytes")] if whole else name
        unit = "By" if whole else "1"
        self._meter.create_observable_gauge(name, [observe], unit=unit)

    def write(self, metrics, step, index):
        from memlab._files import names

        if index is None:
            index = sys.modules["torch"].cuda.current_device()
        # A device has its own figures, and a callback those of its key.
        self._last = metrics, {"rank": names.ranks()["rank"], "device": index}
        for key in metrics.keys() - self._made:
            self._made.add(key)
            self._gauge(key)

    def close(self):
        self._last = {}, {}


class _Fleet:
    name = "the fleet's folder"
    # Rows that wait for a file.
    _ROWS = 1024

    def __init__(self, folder, run, labels):
        from memlab._export import fleet, recording_tables
        from memlab._files import download

        self._folder = os.path.abspath(os.fsdecode(folder))
        if download.is_uri(folder):
            raise ValueError(
                f"fleet must be a folder here, not {os.fsdecode(folder)!r}: an upload would "
                "hold up the training; `memlab export` takes a URI"
            )
        self._pa = recording_tables.package("pyarrow", f"{self._folder}: writing Parquet")
        if run is None:
            now = datetime.datetime.now(datetime.timezone.utc)
            run = os.environ.get("TORCHELASTIC_RUN_ID", "run") + now.strftime("-%Y%m%dT%H%M")
        self._run = fleet.check_run(run)
        self._labels = fleet.check_labels(labels)
        self._rows = []
        self._files = 0
        self._ooms = 0

    def write(self, metrics, step, index):
        if index is None:
            index = sys.modules["torch"].cuda.current_device()
        ooms = metrics["memory/ooms"]
        self._rows.append(
            (
                index,
                step,
                int(time.time() * 1e6),
                metrics["memory/allocated_bytes"],
                metrics["memory/peak_allocated_bytes"],
                metrics["memory/peak_reserved_bytes"],
                ooms - self._ooms,
            )
        )
        self._ooms = ooms
        if len(self._rows) >= self._ROWS:
            self._flush()

    def _flush(self):
        from memlab._export import fleet
        from memlab._files import names

        rows, self._rows = self._rows, []
        pa, ranks = self._pa, names.ranks()
        total = sys.modules["torch"].cuda.get_device_properties
        device, step, time_us, allocated, peak, reserved, ooms = zip(*rows)
        columns = {
            "rank": [ranks["rank"]] * len(rows),
            "world_size": [ranks["world_size"]] * len(rows),
            "host": [os.uname().nodename] * len(rows),
            "device": device,
            "gpu_bytes": [total(index).total_memory for index in device],
            "step": step,
            "time": time_us,
            "category": ["unknown"] * len(rows),
            "bytes": allocated,
            "allocated_bytes": peak,
            "reserved_bytes": reserved,
            "ooms": ooms,
            "source": ["monitor"] * len(rows),
            "labels": [list(self._labels.items())] * len(rows),
        }
        schema = fleet.schema(pa)
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        name = f"rank{ranks['rank']}-monitor{self._files}.parquet"
        self._files += 1
        fleet.write(pa, pa.table(arrays, schema=schema), self._folder, self._run, name)

    def close(self):
        if self._rows:
            self._flush()
