"""Real training for as long as asked, with memlab's totals held to torch's to the byte.

    long_run.py --seconds 480 [--json FILE]

Trains a GPT and a ResNet-like network, loads data in forked workers, captures graphs,
uses side streams and threads, and runs out of memory.  After every step the totals and
their peaks are compared on every device; now and then the recording's blocks are compared
with torch's.  Prints what was done and each mismatch; its exit status is 1 if there were
any.
"""

import argparse
import collections
import functools
import gc
import inspect
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import memlab

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import train_gpt  # noqa: E402

GIB = 1 << 30
SHOWN = 20  # mismatches printed


class Images(Dataset):
    """Random images, made in the worker."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.randn(3, 64, 64), index % 100


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3),
        Residual(64, 128, 2),
        Residual(128, 256, 2),
        Residual(256, 512, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 100),
    )


# ---- Jobs: generators that yield after each step; `check` compares amid one ----


def train_text(order, check):
    """A GPT on batches of changing size, with accumulation, autocast and now and then
    checkpointing."""
    model = train_gpt.GPT(512, 8, 8, 512).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    while True:
        again = order.random() < 0.3
        for _ in range(order.randint(1, 3)):
            batch, length = order.randint(1, 8), order.randint(16, 512)
            tokens = torch.randint(0, 256, (batch, length + 1)).to("cuda")
            with torch.autocast("cuda", torch.bfloat16):
                if again:
                    loss = checkpoint(
                        model, tokens[:, :-1], tokens[:, 1:], use_reentrant=False
                    )
                else:
                    loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=order.random() < 0.8)
        loss.item()
        yield


def train_images(order, check):
    """A network with convolutions on data of forked workers, a new set each epoch."""
    model = resnet().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        loader = DataLoader(
            Images(),
            batch_size=order.choice((8, 16, 24)),
            num_workers=2,
            multiprocessing_context="fork",
            pin_memory=True,
        )
        for images, labels in loader:
            images = images.to("cuda", non_blocking=True)
            loss = F.cross_entropy(model(images), labels.to("cuda"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            yield


def capture_graphs(order, check):
    """Graphs captured, replayed and dropped, in pools of their own and in shared ones."""
    while True:
        width = order.choice((256, 512, 1024))
        model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU()).to("cuda")
        static = torch.randn(64, width, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                model(static).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        model.zero_grad(set_to_none=True)
        graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
        # A loader's thread may use CUDA at the same time.
        mode = {"capture_error_mode": "thread_local"}
        with torch.cuda.graph(graphs[0], **mode):
            model(static).square().mean().backward()
        yield
        with torch.cuda.graph(graphs[1], pool=graphs[0].pool(), **mode):
            kept = model(static) * 2
        yield
        for _ in range(order.randint(1, 5)):
            graphs[order.randrange(2)].replay()
            yield
        del graphs, kept, model
        yield


def share_streams(order, check):
    """Blocks used on streams other than their own, from threads that come and go."""

    def work(seed):
        mine = random.Random(seed)
        stream = torch.cuda.Stream()
        for _ in range(20):
            block = torch.empty(mine.randint(1, 4 << 20), device="cuda")
            with torch.cuda.stream(stream):
                block.mul_(2)
            block.record_stream(stream)

    while True:
        threads = [
            threading.Thread(target=work, args=[order.random()]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield
        if order.random() < 0.3:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            yield


def run_out_of_memory(order, check):
    """The device filled to the last block, and a request that no device can meet."""
    while True:
        held = []
        try:
            for _ in range(1 << 20):
                held.append(torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            check("full")
        held = held[order.randrange(2) :: 2]
        check("half full")
        held.clear()
        try:
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            check("too much")
        # The other jobs use libraries that need memory of their own.
        torch.cuda.empty_cache()
        yield


JOBS = {  # and how often each has its turn
    train_text: 10,
    train_images: 10,
    capture_graphs: 4,
    share_streams: 4,
    run_out_of_memory: 1,
}


# ---- Checks ----


def without_collections(check):
    """A collection between two readings would make them differ."""

    @functools.wraps(check)
    def wrapped(*args):
        gc.disable()
        try:
            return check(*args)
        finally:
            gc.enable()

    return wrapped


class Checker:
    def __init__(self, recorders):
        self.recorders = recorders
        self.mismatches = 0
        self.comparisons = 0

    def expect(self, where, found, expected):
        self.comparisons += 1
        if found != expected:
            self.mismatches += 1
            if self.mismatches <= SHOWN:
                print(f"MISMATCH {where}: memlab {found}, torch {expected}", flush=True)

    @without_collections
    def totals(self, where):
        for device in range(torch.cuda.device_count()):
            theirs = torch.cuda.memory_stats(device)
            ours = memlab.stats(device)
            for name in ("allocated", "active", "requested", "reserved"):
                for key, end in (("current", ""), ("peak", "_peak")):
                    self.expect(
                        f"{where}: cuda:{device} {name} {key}",
                        ours[f"{name}_bytes{end}"],
                        theirs[f"{name}_bytes.all.{key}"],
                    )
            for name in ("dropped_events", "lost_stacks", "inconsistencies"):
                self.expect(f"{where}: cuda:{device} {name}", ours[name], 0)

    @without_collections
    def blocks(self, where):
        """Every block of every segment, from each recorder."""
        expected = collections.Counter(blocks(torch.cuda.memory_snapshot()))
        for name, recorder in self.recorders.items():
            found = collections.Counter(blocks(recorder.data().to_dict()["segments"]))
            self.expect(f"{where}: blocks of {name}", found - expected, expected - found)


def blocks(segments):
    for segment in segments:
        for block in segment["blocks"]:
            yield (segment["device"], block["address"], block["size"], block["state"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    order = random.Random(options.seed)
    torch.manual_seed(options.seed)

    recorders = {"ring": memlab.MemorySnapshot(max_entries=100_000).start()}
    folder = tempfile.TemporaryDirectory()
    if "file" in inspect.signature(memlab.MemorySnapshot).parameters:
        path = Path(folder.name, "run.mlab")
        recorders["file"] = memlab.MemorySnapshot(file=path).start()
    checker = Checker(recorders)
    torch.cuda.init()
    jobs = {job.__name__: job(order, checker.totals) for job in JOBS}
    steps = collections.Counter()
    begin = reported = time.monotonic()
    for number in itertools.count():
        now = time.monotonic()
        if now - begin >= options.seconds:
            break
        (name,) = order.choices(list(jobs), JOBS.values())
        next(jobs[name])
        steps[name] += 1
        checker.totals(f"step {number}, {name}")
        if number % 100 == 0:
            checker.blocks(f"step {number}, {name}")
        if now - reported >= 30:
            reported = now
            print(f"{now - begin:.0f} s: {number} steps, {memlab.stats(0)['events']:,} "
                  f"events, {checker.mismatches} mismatches", flush=True)
    checker.blocks("the end")
    stats = memlab.stats(0)
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - begin),
        "seed": options.seed,
        "recorders": list(recorders),
        "steps": dict(steps),
        "events": stats["events"],
        "ooms": torch.cuda.memory_stats()["num_ooms"],
        "alloc_retries": torch.cuda.memory_stats()["num_alloc_retries"],
        "comparisons": checker.comparisons,
        "mismatches": checker.mismatches,
        "allocated_bytes_peak": stats["allocated_bytes_peak"],
        "reserved_bytes_peak": stats["reserved_bytes_peak"],
    }
    for recorder in recorders.values():
        recorder.stop()
    print(json.dumps(result, indent=1))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(checker.mismatches != 0)


main()
