"""What one event costs: allocations and frees that the cache answers."""

import random
import time

import recorders
from paired import interleave, over, spread

DEPTH = 22  # Python frames on the stack of each measured allocation
EVENTS = 3  # of an allocation and its free: alloc, free_requested, free_completed
LIVE = 2_000
BRANCHES = 6  # 2**6 stacks; a GPT-2 step has 43
PAIRS_A_STACK = 4


def deep(depth, work):
    return work() if depth == 0 else deep(depth - 1, work)


def branch(level, work):
    """Calls WORK from 2**LEVEL stacks, the next of which shares the most it can."""
    if level == 0:
        work()
        return
    branch(level - 1, work)
    branch(level - 1, work)


class OneSize:
    """One size from one line: what a loop over the allocator costs at the least."""

    title = "one size, one stack, nothing else live"

    def __init__(self, pairs):
        self.pairs = pairs
        self.extra = 0

    def loop(self):
        import torch

        empty, device = torch.empty, torch.device("cuda")
        begin = time.perf_counter()
        for _ in range(self.pairs):
            empty(4096, device=device)
        return (time.perf_counter() - begin) / self.pairs

    def run(self):
        return deep(self.extra, self.loop)


class ManyLive:
    """A heap like that of training: blocks of many sizes, freed in another order than
    they were allocated in, from stacks that change after a few allocations."""

    title = f"{LIVE:,} live blocks of many sizes, {2**BRANCHES} stacks"

    def __init__(self, pairs):
        import torch

        order = random.Random(0)
        leaves = 2**BRANCHES
        self.rounds = max(1, pairs // (leaves * PAIRS_A_STACK))
        self.pairs = self.rounds * leaves * PAIRS_A_STACK
        # 512 bytes to 4 MiB, as many of each magnitude.
        sizes = [int(2 ** order.uniform(9, 22)) for _ in range(LIVE)]
        self.live = [torch.empty(s, dtype=torch.uint8, device="cuda") for s in sizes]
        # A block is replaced by one of its own size, so that the cache stays as it is.
        self.plan = [
            (i, sizes[i]) for i in (order.randrange(LIVE) for _ in range(self.pairs))
        ]
        self.extra = 0

    def loop(self):
        import torch

        empty, device, kind = torch.empty, torch.device("cuda"), torch.uint8
        live, plan = self.live, iter(self.plan)

        def work():
            for _ in range(PAIRS_A_STACK):
                i, size = next(plan)
                live[i] = None
                live[i] = empty(size, dtype=kind, device=device)

        begin = time.perf_counter()
        for _ in range(self.rounds):
            branch(BRANCHES, work)
        return (time.perf_counter() - begin) / self.pairs

    def run(self):
        return deep(self.extra, self.loop)


def settle_depth(work):
    """Makes WORK's allocations DEPTH frames deep, as memlab's own recording tells."""
    for _ in range(2):
        with recorders.recorder("memlab") as snapshot:
            work.run()
            trace = snapshot.data().to_dict()["device_traces"][0]
        depths = {len(e["frames"]) for e in trace if e["action"] == "alloc"}
        if depths == {DEPTH}:
            return
        (depth,) = depths
        work.extra += DEPTH - depth
    raise AssertionError(f"stacks are {depths} frames deep, not {DEPTH}")


def bench_event(options):
    """Figures of one event, by kind of work; nanoseconds."""
    pairs = 2_000 if options.quick else 20_000
    works = {"one_size": OneSize(pairs), "many_live": ManyLive(pairs)}
    for work in works.values():  # as deep as memlab will find it to be
        work.extra = DEPTH - 5
    # Attaching the tracker is for the life of the process, so this comes first.
    never = {}
    for name, work in works.items():
        never[name] = [work.run() for _ in range(options.repeats + 1)][1:]
    names = recorders.names("torch no stacks", "torch python", "torch all")
    result = {"depth": DEPTH}
    for kind, work in works.items():
        settle_depth(work)

        def measure(name, work=work):
            with recorders.recorder(name):
                return work.run()

        values = interleave(names, options.repeats, measure)
        result[kind] = {"title": work.title, "rows": rows(never[kind], values)}
    return result


def rows(never, values):
    """A pair's time and what an event costs over an idle tracker, in ns."""
    base = [value / EVENTS * 1e9 for value in values[recorders.OFF]]
    table = {"never attached": {"pair_ns": spread([v * 1e9 for v in never])}}
    for name, times in values.items():
        table[name] = {
            "pair_ns": spread([v * 1e9 for v in times]),
            "event_ns_over_off": over([v / EVENTS * 1e9 for v in times], base),
        }
    return table
