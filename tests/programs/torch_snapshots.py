"""Snapshots as torch's own recorder writes them, of programs that are hard to read.

    torch_snapshots.py DIR [NAME...]

makes DIR/NAME-torchVERSION.pickle.gz of each program, each in a process of its own, and
prints how many bytes it has; memlab takes no part.  On a machine without two GPUs, under
`memlab phantom --devices 2`.  Of what torch wrote only the beginnings of paths change.
"""

import gzip
import inspect
import os
import pickle
import subprocess
import sys
import sysconfig

import torch
from torch import nn

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def net(width=64):
    return nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    )


def train(model, device="cuda", steps=2, width=64):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.randn(8, width, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


@program
def compiled():
    """Inductor's code: frames that have no line of their own."""
    return train(torch.compile(net().cuda()))


@program
def scripted():
    """TorchScript's interpreter, whose frames torch adds to Python's."""
    return train(torch.jit.script(net().cuda()))


@program
def graph_captured():
    """A private pool, by warm-up, capture and replay."""
    model = net().cuda()
    batch = torch.randn(8, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(batch)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(batch)
    graph.replay()
    return graph, out


@program
def two_gpus():
    """Two devices, one of which lends its tensors to a second stream."""
    kept = [train(net().to(device), device) for device in ("cuda:0", "cuda:1")]
    stream = torch.cuda.Stream("cuda:1")
    lent = torch.empty(1 << 20, device="cuda:1")
    lent.record_stream(stream)
    return kept


@program
def out_of_memory():
    """An event of kind "oom", which has no address."""
    kept = train(net().cuda())
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return kept
    raise SystemExit("there was enough memory")


@program
def expandable():
    """Segments that are mapped piece by piece; run with expandable_segments:True."""
    kept = [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    del kept[1::2]
    torch.cuda.empty_cache()
    return kept, train(net().cuda())


@program
def native_frames():
    """stacks="all": C++ frames, with whatever the symbolizer could tell of them."""
    return train(net().cuda(), steps=1)


@program
def anomaly():
    """What a backward pass makes has the traceback of its forward."""
    with torch.autograd.detect_anomaly(check_nan=False):
        return train(net().cuda(), steps=1)


@program
def pinned():
    """The host's pinned memory, beside the device's: torch 2.15 and later."""
    return torch.empty(1 << 20, pin_memory=True), torch.empty(1 << 20, device="cuda")


def keeps_host():
    implementation = torch.cuda.memory._record_memory_history_impl
    return "record_pinned_host_memory" in inspect.signature(implementation).parameters


def record(name, path):
    stacks = "all" if name in ("native_frames", "scripted", "compiled") else "python"
    torch.cuda.init()
    options = {"record_pinned_host_memory": True} if name == "pinned" else {}
    torch.cuda.memory._record_memory_history(
        "all", stacks=stacks, max_entries=100_000, **options
    )
    kept = PROGRAMS[name]()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(path)
    del kept


def shorten(path):
    """Takes out of the names in the file at PATH where Python and we are installed."""
    places = {
        sys.prefix: "/venv",
        sys.base_prefix: "/python",
        sysconfig.get_config_var("abs_srcdir"): "/python/source",
        os.path.dirname(os.path.abspath(__file__)): "/programs",
    }
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    events = [event for trace in snapshot["device_traces"] for event in trace]
    events += snapshot.get("host_traces", ())
    segments = [*snapshot["segments"], *snapshot.get("host_segments", ())]
    blocks = [block for segment in segments for block in segment["blocks"]]
    for thing in (*events, *blocks, *segments):
        for frame in thing.get("frames", ()):
            for place, short in places.items():
                if frame["filename"].startswith(place):
                    frame["filename"] = short + frame["filename"][len(place) :]
        entries = thing.get("forward_frames", ())
        for i, entry in enumerate(entries):
            for place, short in places.items():
                entry = entry.replace(place, short)
            entries[i] = entry
    data = pickle.dumps(snapshot)
    for place in places:
        assert place.encode() not in data, f"{path} names {place}"
    return data


def main(folder, names):
    for name in names or (n for n in PROGRAMS if n != "pinned" or keeps_host()):
        path = os.path.join(
            folder, f"{name}-torch{torch.__version__.split('+')[0]}.pickle"
        )
        environment = dict(os.environ)
        if name == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        command = [sys.executable, __file__, "--record", name, path]
        subprocess.run(command, env=environment, check=True)
        data = shorten(path)
        os.remove(path)
        with open(path + ".gz", "wb") as file:
            file.write(gzip.compress(data, 9, mtime=0))
        print(
            f"{path}.gz: {os.path.getsize(path + '.gz')} bytes of {len(data)}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(*sys.argv[2:])
    else:
        main(sys.argv[1], sys.argv[2:])
