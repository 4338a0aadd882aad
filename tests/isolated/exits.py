"""Ends in the way that the first argument names; records if there is a second one."""

import os
import signal
import sys
import threading

import torch

held = [torch.empty(1000, device="cuda"), torch.empty(1000)]

if len(sys.argv) > 2:
    import memlab
    from memlab import _core

    recorders = [memlab.MemorySnapshot(source=name).start() for name in ("cuda", "cpu")]
    memlab.record_memory_history()
    script = _core.Script()
    recorders.append(memlab.MemorySnapshot(source="script").start())

held += [torch.empty(1000, device="cuda"), torch.empty(1000)]
going = threading.Event()


def allocate():
    while True:
        torch.empty(1000, device="cuda")
        torch.empty(1000)
        going.set()


def emit():
    script.emit("segment_alloc", 1 << 30, 1 << 21)
    while True:
        script.emit("alloc", 1 << 30, 1000)
        script.emit("free_requested", 1 << 30, 1000)
        script.emit("free_completed", 1 << 30, 1000)
        recorders[-1].data()
        going.set()


def finish(kind):
    if kind in ("daemon", "daemon_events"):
        target = allocate if kind == "daemon" else emit
        for _ in range(3):
            threading.Thread(target=target, daemon=True).start()
        going.wait()
    elif kind == "exit":
        sys.exit(3)
    elif kind == "exception":
        raise ValueError("the program's own")
    elif kind == "_exit":
        os._exit(5)
    elif kind == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    elif kind == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    elif kind == "abort":
        os.abort()
    elif kind == "exec":
        os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(7)"])
    else:
        assert kind == "return", kind


finish(sys.argv[1])
