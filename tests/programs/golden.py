"""Recordings of every kind that memlab writes, for tests/data/golden/.

    golden.py DIR

writes them packed by gzip.  On a machine without two GPUs, under `memlab phantom --devices
2`; in a namespace with a host name that is nobody's (`unshare --uts`).  Of what memlab wrote
the beginnings of paths and the id of the boot change, to others as long, and the checksums.
"""

import gzip
import importlib.util
import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import memlab

sys.path.append(str(Path(__file__).parents[1] / "support"))
from mlab_by_hand import crc32c

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def train(device, steps=2, width=64):
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, 1))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        with memlab.phase("forward"):
            loss = net(torch.randn(8, width, device=device)).square().mean()
        with torch.profiler.record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        memlab.step()
    memlab.mark("trained")
    return net, optimizer


@program
def cuda(name):
    """With uses, two devices, a stream beside the default and out of memory."""
    import torch

    before = torch.ones(3 << 20, device="cuda:1")
    with memlab.MemorySnapshot(uses=True, file=name + ".mlab") as snapshot:
        kept = train("cuda:0")
        side = torch.cuda.Stream("cuda:1")
        with torch.cuda.stream(side):
            lent = torch.empty(1 << 20, device="cuda:1")
        lent.record_stream(torch.cuda.current_stream("cuda:1"))
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda:0")
        except torch.OutOfMemoryError:
            pass
        snapshot.save(name + ".pickle")
    del kept, lent, before


@program
def expandable(name):
    import torch

    with memlab.MemorySnapshot(context="alloc", file=name + ".mlab") as snapshot:
        kept = [torch.empty(3 << 20, device="cuda:0") for _ in range(4)]
        del kept[1::2]
        torch.cuda.empty_cache()
        snapshot.save(name + ".pickle")


@program
def native(name):
    """C++ frames too."""
    with memlab.MemorySnapshot(stacks="all", file=name + ".mlab") as snapshot:
        kept = train("cuda:0", steps=1)
        snapshot.save(name + ".pickle")
    del kept


@program
def cpu(name):
    """Lanes are threads."""
    import threading

    import torch

    with memlab.MemorySnapshot(source="cpu", file=name + ".mlab") as snapshot:
        thread = threading.Thread(target=lambda: torch.ones(1 << 16).sum())
        thread.start()
        thread.join()
        kept = train("cpu")
        snapshot.save(name + ".pickle")
    del kept


@program
def killed(name):
    """Cut off, without an end."""
    snapshot = memlab.MemorySnapshot(context="state", file=name + ".mlab").start()
    kept = train("cuda:0", steps=1)
    os._exit(0 if snapshot.recording and kept else 1)


@program
def shared(name):
    """Begun while another recording goes on, with which it shares its records; several
    chunks of one lane."""
    import torch

    other = memlab.MemorySnapshot(uses=True).start()
    kept = train("cuda:0", steps=1)
    with memlab.MemorySnapshot(file=name + ".mlab"):
        for i in range(3000):
            torch.empty(512 * (i % 7 + 1), dtype=torch.uint8, device="cuda:0").fill_(i % 2)
        kept = train("cuda:0", steps=1)
    other.stop()
    del kept


@program
def kept(name):
    """Of a long run the last part; the owners and a phase are older."""
    import torch

    before = torch.ones(3 << 20, device="cuda:0")
    with memlab.MemorySnapshot(file=name + ".mlab", keep_last="2steps"), memlab.phase("run"):
        net, optimizer = train("cuda:0")
        for _ in range(60):
            for _ in range(1500):
                torch.empty(512, dtype=torch.uint8, device="cuda:0")
            net(torch.randn(8, 64, device="cuda:0")).sum().backward()
            optimizer.step()
            memlab.step()
    del before


@program
def segments(name):
    """torch's list of segments alone, by its own pickle."""
    import pickle

    import torch

    kept = train("cuda:0", steps=1)
    lent = torch.empty(1 << 20, device="cuda:1")
    with open(name + ".pickle", "wb") as file:
        pickle.dump(torch.cuda.memory_snapshot(), file)
    del kept, lent


@program
def ranks(name):
    """Two processes, merged."""
    paths = []
    for rank in range(2):
        path = f"{name}_rank{rank}.mlab"
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        command = [sys.executable, __file__, "--record", "rank", path]
        subprocess.run(command, env={**os.environ, **place}, check=True)
        paths.append(path)
    command = [sys.executable, "-m", "memlab", "merge", *paths, "-o", name + ".pickle"]
    subprocess.run(command, check=True)
    for path in paths:
        os.remove(path)


def rank(path):
    import torch

    device = int(os.environ["RANK"])
    with memlab.MemorySnapshot(device=device, file=path):
        kept = train(f"cuda:{device}", width=64 + 64 * device)
        torch.cuda.synchronize()
    del kept


def nobodys(data):
    """DATA of a file, with names that say nothing of this machine."""
    places = {
        sys.prefix: "/venv",
        # Where torch is installed, which may be a virtual environment below that.
        str(Path(importlib.util.find_spec("torch").origin).parents[4]): "/venv",
        sys.base_prefix: "/python",
        sysconfig.get_config_var("abs_srcdir"): "/source",
        str(Path(__file__).parent): "/programs",
        str(Path(memlab.__file__).parent): "/memlab",
    }
    for place in sorted(places, key=len, reverse=True):
        data = data.replace(place.encode(), places[place].ljust(len(place), "/").encode())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    nothing = boot.translate(str.maketrans("23456789abcdef", "1" * 14))
    data = data.replace(boot.encode(), nothing.encode())
    if not data.startswith(b"\x89MLAB"):
        return data
    data = bytearray(data)
    data[168:184] = bytes.fromhex(nothing.replace("-", ""))
    (size,) = struct.unpack_from("<I", data, 32)
    for at in range(size, len(data), size):
        (whole,) = struct.unpack_from("<I", data, at + 40)
        if data[at : at + 4] == b"MLCK":
            struct.pack_into("<I", data, at + 44, crc32c(data[at + 64 : at + 64 + whole]))
    return bytes(data)


def main(folder):
    for name in PROGRAMS:
        environment = dict(os.environ)
        if name == "expandable":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        command = [sys.executable, __file__, "--record", name, name]
        subprocess.run(command, env=environment, cwd=folder, check=True)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith((".mlab", ".pickle")):
            with open(path, "rb") as file, open(path + ".gz", "wb") as packed:
                packed.write(gzip.compress(nobodys(file.read()), 9, mtime=0))
            os.remove(path)
            print(path + ".gz:", os.path.getsize(path + ".gz"), "bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        {**PROGRAMS, "rank": rank}[sys.argv[2]](sys.argv[3])
    else:
        main(sys.argv[1])
