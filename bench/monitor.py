"""What a step of memlab.MemoryMonitor costs, with each of its sinks.

    python bench/monitor.py [TIMES]

Each is called TIMES times (default: 2,000) in each of seven rounds; they take turns.  Printed
is the time of the calling thread's processor for one call, of the best round.  torch's own
figures, which each step reads, are beside it.  OpenTelemetry's reader asks for nothing
meanwhile, as between two exports.  Without a GPU it runs on the phantom: the counters are
torch's own there, too.
"""

import os
import sys
import tempfile
import time

from memlab import MemoryMonitor, metrics, phantom
from memlab._native import devices

ROUNDS = 7


def microseconds(call, times):
    began = time.thread_time()
    for _ in range(times):
        call()
    return (time.thread_time() - began) / times * 1e6


def main():
    if not devices.gpu_present() and "MEMLAB_BENCH_PHANTOM" not in os.environ:
        kept = phantom.environment() | {"MEMLAB_BENCH_PHANTOM": "1", "MEMLAB_PHANTOM_QUIET": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], dict(os.environ) | kept)

    import torch
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    times = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    held = torch.ones(1 << 20, device="cuda")
    meter = MeterProvider([InMemoryMetricReader()]).get_meter("bench")
    with tempfile.TemporaryDirectory() as folder:
        monitors = {
            "no sink": MemoryMonitor(),
            "prometheus": MemoryMonitor(prometheus=0),
            "opentelemetry": MemoryMonitor(opentelemetry=meter),
            "fleet": MemoryMonitor(fleet=folder),
        }
        calls = {
            "torch.cuda.memory_stats_as_nested_dict()": torch.cuda.memory_stats_as_nested_dict,
            "memlab.metrics()": metrics,
        }
        calls |= {f"step(), {name}": monitor.step for name, monitor in monitors.items()}
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], microseconds(call, times))
        for monitor in monitors.values():
            monitor.close()
    del held
    for name, value in best.items():
        print(f"{name:45}{value:8.1f} us")


if __name__ == "__main__":
    main()
