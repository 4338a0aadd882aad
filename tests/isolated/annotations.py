"""Regions, phases and metadata in a CUDA recording, beside torch's own recorder.

Prints a JSON object of what memlab's snapshot and torch's say, and what a forked child
and a thread did.
"""

import json
import os
import threading

import torch
from torch.profiler import record_function

import memlab

memlab.record_memory_history(stacks="python")
weight = torch.nn.Parameter(torch.zeros(1 << 20, device="cuda"))
weight.grad = torch.ones_like(weight)
optimizer = torch.optim.SGD([weight], lr=0.1)


def train():
    with memlab.phase("train"), record_function("forward"):
        weight * 2
        optimizer.step()


train()
alone = memlab.snapshot()["external_annotations"]

torch.cuda.memory._record_memory_history()
train()
torch.cuda.memory._set_memory_metadata("batch 7")
kept = torch.zeros(1 << 20, device="cuda")
torch.cuda.memory._set_memory_metadata("")
theirs = torch.cuda.memory._snapshot()
ours = memlab.snapshot()
torch.cuda.memory._record_memory_history(enabled=None)


def region():
    with record_function("of a thread"):
        pass


thread = threading.Thread(target=region)
thread.start()
thread.join()
child = os.fork()
if child == 0:
    region()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
last = memlab.snapshot()["external_annotations"]
memlab.record_memory_history(None)
with record_function("after"):
    pass


def metadata(snapshot):
    return [
        (e["action"], e["size"], e.get("user_metadata"))
        for e in snapshot["device_traces"][0]
        if e.get("user_metadata")
    ]


print(
    json.dumps(
        {
            "alone": alone,
            "ours": ours["external_annotations"],
            "theirs": theirs["external_annotations"],
            "last": last,
            "child": status,
            "our_metadata": metadata(ours),
            "their_metadata": metadata(theirs),
        }
    )
)
