"""A fork while another thread holds the lock of torch's callbacks (tests/helpers/held_lock.c):
in its first operator since a collective, from which on memlab's callback is every thread's,
as it enters a region, or in its first operator of all, while the child computes on the
phantom device.
"""

import ctypes
import os
import signal
import sys
import threading

import torch

import memlab

lock = ctypes.CDLL(None)


def need_the_lock():
    torch._C._autograd._enable_record_function(False)
    torch._C._autograd._enable_record_function(True)


def operate():
    lock.hold_next()
    torch.empty(1)


def compute():
    # The phantom hides what it computes on the host from torch's callbacks.
    assert torch.full((2,), 21.0, device="cuda").sum().item() == 42


def enter():
    torch.empty(1)
    lock.hold_next()
    with torch.profiler.record_function("region"):
        pass


lock.learn()
need_the_lock()
recorder = memlab.MemorySnapshot(source="cuda" if sys.argv[1] == "phantom" else "cpu").start()
if sys.argv[1] == "operator":
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    # On a thread, or this one would run operators afterwards.
    meeting = threading.Thread(target=torch.distributed.barrier)
    meeting.start()
    meeting.join()
if sys.argv[1] == "phantom":
    torch.empty(1)  # this thread has copied the list: the fork waits for nothing
thread = threading.Thread(target=enter if sys.argv[1] == "region" else operate)
thread.start()
while not lock.is_held():
    assert thread.is_alive(), "torch took no lock: this shows nothing"
    os.sched_yield()
child = os.fork()
if child == 0:
    signal.alarm(20)  # it would wait for ever
    torch.empty(1)
    if sys.argv[1] == "region":
        need_the_lock()
    elif sys.argv[1] == "phantom":
        compute()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
lock.let_go()
thread.join()
recorder.stop()
print("the child's status:", status)
