"""An endpoint for Prometheus, in its text format 0.0.4.

Owns the endpoint's thread and the format.  A request gets the last published figures;
it never uses a GPU.
"""

from __future__ import annotations

import math
import re
import threading

from memlab._serve import connections

# Others are gauges under their own names.
_KNOWN = {
    "memory/allocated_bytes": "Bytes of tensors in torch's allocator.",
    "memory/peak_allocated_bytes": "The most allocated bytes, by torch's own peak.",
    "memory/active_bytes": "Bytes allocated, or freed but awaited by a stream.",
    "memory/peak_active_bytes": "The most active bytes, by torch's own peak.",
    "memory/inactive_split_bytes": "Free bytes of segments that are partly in use.",
    "memory/peak_inactive_split_bytes": "The most of these, by torch's own peak.",
    "memory/reserved_bytes": "Bytes that torch's allocator has of the driver.",
    "memory/peak_reserved_bytes": "The most reserved bytes, by torch's own peak.",
    "memory/fragmentation": "inactive_split_bytes / reserved_bytes.",
    "memory/alloc_retries": "How often torch gave its cache back to allocate at all.",
    "memory/ooms": "How often torch was out of memory.",
    "memory/unexplained_bytes": "Used bytes of the GPU that nothing explains.",
    "step": "The training step of these figures.",
}
_ENDINGS = {
    "memory/fragmentation": "_ratio",
    "memory/alloc_retries": "_total",
    "memory/ooms": "_total",
}


def parse_address(where: object) -> tuple[str, int]:
    """(host, port) from a port or "HOST:PORT".  Raises ValueError or TypeError."""
    host, port = "127.0.0.1", where
    if isinstance(where, str):
        host, _, port = where.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"prometheus must be a port or 'HOST:PORT', not {where!r}")
        port = int(port)
    if not isinstance(port, int) or isinstance(port, bool):
        raise TypeError(f"prometheus must be a port or 'HOST:PORT', not {where!r}")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"prometheus must have a port from 0 to 65535, not {port}")
    return host.strip("[]"), port


def exposition(metrics: dict[str, float], labels: dict[str, str]) -> bytes:
    """METRICS with LABELS as a page of Prometheus."""
    pairs = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
    lines = []
    for key, value in metrics.items():
        ending = _ENDINGS.get(key, "")
        name = "memlab_" + re.sub(r"[^a-zA-Z0-9_]", "_", key) + ending
        kind = "counter" if ending == "_total" else "gauge"
        lines += [
            f"# HELP {name} {_escaped(_KNOWN.get(key, key))}",
            f"# TYPE {name} {kind}",
            f"{name}{{{pairs}}} {_number(value)}",
        ]
    return "".join(line + "\n" for line in lines).encode()


def _escaped(text):
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text):
    return _escaped(text).replace('"', r"\"")


def _number(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


class Endpoint:
    """Serves /metrics at HOST and PORT; 0: any free port.  Raises OSError."""

    def __init__(self, host: str, port: int) -> None:
        self._server = connections.Server((host, port), _Handler)
        self._server.published = {}, {}
        thread = threading.Thread(
            target=self._server.run, name="memlab-prometheus", daemon=True
        )
        thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """The endpoint's host and port."""
        return self._server.server_address[:2]

    def publish(self, metrics: dict[str, float], labels: dict[str, str]) -> None:
        """From now on, requests get METRICS."""
        self._server.published = metrics, labels

    def close(self) -> None:
        """Ends the endpoint."""
        self._server.close()


class _Handler(connections.Handler):
    def do_GET(self):
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        page = exposition(*self.server.published)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
