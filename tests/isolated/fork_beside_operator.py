"""A fork right after a recording began, while another thread is in its first operator since:
it holds the lock under which torch's callbacks are copied (tests/helpers/held_lock.c)."""

import ctypes
import os
import signal
import threading

import torch

import memlab

lock = ctypes.CDLL(None)


def operate():
    lock.hold_next()
    torch.empty(1)


torch.empty(1)
recorder = memlab.MemorySnapshot(source="cpu").start()
thread = threading.Thread(target=operate)
thread.start()
while not lock.is_held():
    assert thread.is_alive(), "torch took no lock: this shows nothing"
    os.sched_yield()
child = os.fork()
if child == 0:
    signal.alarm(20)  # it would wait for ever
    torch.empty(1)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
lock.let_go()
thread.join()
recorder.stop()
print("the child's status:", status)
