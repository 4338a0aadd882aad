"""Signals at a high rate while memlab and torch record.

A Python handler allocates and reads memlab at each SIGALRM; faulthandler walks all
threads in a C handler at each SIGPROF, wherever it lands, the allocator's callback
included.  After each round memlab's totals and events are torch's.
"""

import contextlib
import faulthandler
import os
import signal
import sys

import both
import torch

import memlab

PERIOD = 0.001
handled = 0
held = []
comparing = False


def on_alarm(number, frame):
    global handled
    if comparing:
        return
    handled += 1
    held.append(torch.empty(1 + handled % 5000, device="cuda"))
    del held[:-20]
    if handled % 10 == 0:
        memlab.stats()
    if handled % 100 == 0:
        recorder.data()


@contextlib.contextmanager
def quiet():
    """No handler changes memory in here: two recorders are compared.  Not by a mask of
    signals, which is a thread's: autograd's threads take them too."""
    global comparing
    comparing = True
    yield
    comparing = False


def work(rounds):
    live = {}
    for i in range(rounds):
        live[i % 50] = torch.empty(1 + i * 7919 % 3_000_000, device="cuda")
        if i % 10 == 0:
            w = torch.ones(300, 300, device="cuda", requires_grad=True)
            (w * w).relu().sum().backward()


torch.empty(1, device="cuda")
both.start()
recorder = memlab.MemorySnapshot(max_entries=1000).start()
walks = open(os.devnull, "w")
faulthandler.register(signal.SIGPROF, file=walks, all_threads=True)
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
signal.setitimer(signal.ITIMER_PROF, PERIOD, PERIOD)
for turn in range(int(sys.argv[1])):
    work(3000)
    with quiet():
        both.reconcile(f"turn {turn}")
for timer in (signal.ITIMER_REAL, signal.ITIMER_PROF):
    signal.setitimer(timer, 0)
with quiet():
    both.check()
recorder.stop()
assert handled > 0, "no signal came"
print(f"{handled} signals handled, totals and events are torch's")
