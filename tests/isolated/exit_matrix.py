"""Every way to end a process, many times: alone, and while memlab records.

Each end takes place in a child that is forked before CUDA or memlab are used and then
uses both, which spares the import of torch; the parent compares exit status and stderr.
"""

import atexit
import gc
import os
import signal
import sys
import tempfile
import threading

import torch

HANG_SECONDS = 60  # no end takes a hundredth of it


def allocate(count=20):
    live = [torch.empty(1000 + i, device="cuda") for i in range(count)]
    return live + [torch.empty(1000 + i) for i in range(count)]


class AllocatesWhenCollected:
    def __del__(self):
        torch.empty(1000)


def thread_raises():
    def fail():
        allocate()
        raise ValueError("the thread's own")

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()


def waiting_thread(daemon):
    ready, halt = threading.Event(), threading.Event()

    def wait():
        held = allocate()
        ready.set()
        if daemon:
            halt.wait()
        del held

    threading.Thread(target=wait, daemon=daemon).start()
    ready.wait()


def interrupt_twice():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        allocate()
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()


def terminate_handled():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(len(allocate()) + 3))
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def raise_in_handler():
    def handler(number, frame):
        raise RuntimeError("the handler's own")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while True:
        allocate()


def leave_cycle():
    """Garbage that allocates when the interpreter is torn down."""
    torch.kept = AllocatesWhenCollected()
    torch.kept.self = torch.kept


def fork_and_exit():
    """The child leaves through the interpreter's end, the parent as well."""
    child = os.fork()
    held = [torch.empty(1000)]
    if child == 0:
        del held
        sys.exit(4)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 10)


def out_of_memory():
    torch.empty(1 << 45, device="cuda")


ENDS = {
    "return": lambda: None,
    "sys.exit": lambda: sys.exit(3),
    "sys.exit(text)": lambda: sys.exit("the program's last words"),
    "exception": lambda: [][0],
    "out of memory": out_of_memory,
    "os._exit": lambda: os._exit(5),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGTERM handled": terminate_handled,
    "SIGINT": lambda: signal.raise_signal(signal.SIGINT),
    "SIGINT twice": interrupt_twice,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "abort": os.abort,
    "exec": lambda: os.execl(sys.executable, sys.executable, "-Sc", "raise SystemExit(7)"),
    "handler raises": raise_in_handler,
    "thread raises": thread_raises,
    "daemon thread waits": lambda: waiting_thread(True),
    "thread ends": lambda: waiting_thread(False),
    "garbage": leave_cycle,
    "fork": fork_and_exit,
}
# What the manual of each says, lest both runs go wrong alike.
STATUS = {
    "return": 0,
    "sys.exit": 3,
    "sys.exit(text)": 1,
    "exception": 1,
    "out of memory": 1,
    "os._exit": 5,
    "SIGTERM": -signal.SIGTERM,
    "SIGTERM handled": 43,
    "SIGINT": -signal.SIGINT,
    "SIGINT twice": -signal.SIGINT,
    "SIGKILL": -signal.SIGKILL,
    "SIGSEGV": -signal.SIGSEGV,
    "abort": -signal.SIGABRT,
    "exec": 7,
    "handler raises": 1,
    "thread raises": 0,
    "daemon thread waits": 0,
    "thread ends": 0,
    "garbage": 0,
    "fork": 14,
}


def end(kind, recorded, output):
    """The child's whole life; where it returns, the process ends by itself."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A shell's background jobs ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    held = allocate()
    atexit.register(at_exit, "registered before memlab")
    recorders = start_recording() if recorded else []
    atexit.register(at_exit, "registered after memlab")
    torch.held = held + recorders + allocate()
    ENDS[kind]()


def at_exit(text):
    print(text, len(allocate()), file=sys.stderr)


def start_recording():
    import memlab

    memlab.record_memory_history()
    return [memlab.MemorySnapshot(source=name).start() for name in ("cuda", "cpu")]


def wait(child, what):
    """The exit status; ends a child that hangs."""

    def hangs(number, frame):
        os.kill(child, signal.SIGKILL)
        raise AssertionError(f"{what} hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANG_SECONDS)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(0)
    return status


def told(text):
    """TEXT but for where a traceback passed, which is a matter of chance in some ends, and what
    the phantom says of itself once."""
    return [line for line in text.splitlines() if not line.startswith((" ", "memlab phantom: "))]


def main(turns):
    gc.freeze()  # torch's own objects, most of what the end of each child would go over
    for _ in range(turns):
        for kind in ENDS:
            seen = {}
            for recorded in (False, True):
                with tempfile.TemporaryFile() as output:
                    child = os.fork()
                    if child == 0:
                        return end(kind, recorded, output.fileno())
                    what = f"{kind}, {'recorded' if recorded else 'alone'}"
                    status = wait(child, what)
                    output.seek(0)
                    seen[recorded] = status, told(output.read().decode())
            assert seen[True] == seen[False], f"{kind}: {seen[True]} is not {seen[False]}"
            assert seen[True][0] == STATUS[kind], (kind, seen[True])
    print(f"{turns} times {len(ENDS)} ends: status and stderr as without memlab")


if __name__ == "__main__":
    main(int(sys.argv[1]))
