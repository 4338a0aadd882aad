"""A program without TorchScript: torch is asked for its frames once, where C++ initialises CUDA
while a recording waits for that; with one, for each event."""

import ctypes

import torch

import memlab

asked = ctypes.c_int.in_dll(ctypes.CDLL(None), "callstacks")
waiting = memlab.MemorySnapshot(source="cuda").start()
kept = [torch.empty(1000, device="cuda") for _ in range(100)]
assert not waiting.waiting and asked.value <= 1, asked.value


@torch.jit.script
def work(x):
    return x + 1


before = asked.value
work(kept[0])
assert asked.value > before
waiting.stop()
