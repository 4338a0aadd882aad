"""Says where the time of a training step under memlab goes, by cause.

    python bench/causes.py                     a table, and build/causes.json
    python bench/causes.py --json FILE         every repeat's value, as FILE
    python bench/causes.py --quick             a rehearsal, some minutes on two cores

Recorders that differ by one cause each take turns on one training step, in a new random order
each repeat.  The wall time of a step, the processor time of the threads that launch it, and
their page faults are measured; a cause is the median of the differences within repeats.  Then
the step's own events go through the ledger, the lane and the file alone, warm and with the
caches emptied between events, and an allocation and its free go through torch's allocator in
the same two ways.  bench/README.md says how to read it.
"""

import argparse
import contextlib
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import causes_table
import recorders
import run
from paired import interleave, over, spread

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("example:1x128:float32", "example:8x512:bfloat16")
# Steps of a recording before those that count: in these memlab samples memory, and a file gets
# the program's code and its lines.  The next time is after step 8.
FIRST, COUNTED = 4, 3
# Each has all that the one before it has, but for those of uses, which are beside the file.
LADDER = ("off", "events", "stacks", "hooks", "module calls", "tags", "step notes", "file", "uses",
          "uses paused")
BASE = {"file": "step notes", "uses": "step notes", "uses paused": "step notes"}
# Uses are followed in one step of so many; then those that count are none of these.
EVERY = 8
CORES = ("base", "file", "gpu", "ledger", "record", "recording", "stacks")


def main():
    from memlab import phantom
    from memlab._native import devices

    options = arguments(devices)
    if not devices.gpu_present():
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, **phantom.environment(), "MEMLAB_PHANTOM_QUIET": "1"})
    if options.part:
        return run.write(options.json, measure(options, options.part))
    results = {"repeats": options.repeats, "parts": {}}
    for part in (*(f"step/{text}" for text in options.step), "event"):
        result = run.run_part(part)
        results["machine"] = result.pop("machine", None) or results.get("machine")
        results["parts"][part] = result
        run.write(options.json, results)
    causes_table.show(results)
    print(f"\nFigures: {options.json}")


def arguments(devices):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there",
                        default=str(ROOT / "build" / "causes.json"))
    parser.add_argument("--repeats", type=int, help="of each recorder (default: 31)")
    parser.add_argument("--step", action="append", metavar="MODEL:BATCHxLENGTH:PRECISION",
                        help=f"a step to measure; may be given again (default: {' '.join(STEPS)})")
    parser.add_argument("--causes", metavar="NAME,...", type=lambda text: text.split(","),
                        default=LADDER, help=f"of {', '.join(LADDER)}; off must be there")
    parser.add_argument("--quick", action="store_true", help="a small rehearsal")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Without a GPU the second shows nothing that the first does not.
    options.step = options.step or list(STEPS[:1] if devices.under_phantom() else STEPS)
    options.repeats = options.repeats or (3 if options.quick else 31)
    return options


def measure(options, part):
    kind, _, text = part.partition("/")
    result = step_causes(options, text) if kind == "step" else event_causes(options)
    return {**result, "machine": run.machine()}


# ---- Recorders that differ by one cause ----


class NoOwners:
    """In place of memlab's watch over owners: none of it."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def start(self):
        """Watches nothing."""

    def stop(self):
        """There is nothing to end."""

    def scan(self):
        """Tags nothing."""


class Hooks(NoOwners):
    """Torch's hooks on the optimizer's step call memlab, which does nothing."""

    def start(self):
        from memlab._record import optimizers

        optimizers.watch(self)

    def stop(self):
        from memlab._record import optimizers

        optimizers.forget(self)

    def before_step(self, optimizer):
        """Nothing."""

    after_step = before_step


class ModuleCalls(Hooks):
    """Also looks for modules that are called for the first time."""

    def start(self):
        import torch

        from memlab import _core

        super().start()
        _core.watch_calls(self.snapshot, torch.Tensor, torch.nn.Module, torch.optim.Optimizer)

    def stop(self):
        from memlab import _core

        super().stop()
        _core.forget_calls(self.snapshot)


class NoSteps:
    """In place of what notes the program's steps."""

    def start(self):
        """Notes none."""

    stop = start


OWNERS = {"events": NoOwners, "stacks": NoOwners, "hooks": Hooks, "module calls": ModuleCalls}


@contextlib.contextmanager
def recording(cause):
    """Records with all causes of the ladder up to CAUSE; gives the MemorySnapshot, or None."""
    import memlab
    from memlab._record import annotations

    if cause == "off":
        yield None
        return
    steps = annotations._steps
    with tempfile.TemporaryDirectory() as folder:
        snapshot = memlab.MemorySnapshot(
            max_entries=recorders.ENTRIES,
            context=None if cause == "events" else "all",
            file=os.path.join(folder, "recording.mlab") if cause == "file" else None,
            uses={"uses": 1, "uses paused": EVERY}.get(cause, 0),
        )
        if cause in OWNERS:
            snapshot._owners = OWNERS[cause](snapshot)
        if cause in OWNERS or cause == "tags":
            annotations._steps = NoSteps()
        try:
            with snapshot:
                yield snapshot
        finally:
            annotations._steps = steps


# ---- A step ----


class Launching:
    """The threads that launch a step: this one and autograd's."""

    def __init__(self):
        self.threads = [threading.get_native_id()]
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().startswith("pt_autograd"):
                self.threads.append(int(task.name))

    def processor_ns(self):
        """Processor time of these threads, exact while the others are idle."""
        # The kernel's number of a thread's clock.
        return sum(time.clock_gettime_ns((~thread << 3) | 6) for thread in self.threads)

    def faults(self):
        """Page faults of these threads that read no file."""
        count = 0
        for thread in self.threads:
            stat = Path(f"/proc/self/task/{thread}/stat").read_text()
            count += int(stat.rpartition(")")[2].split()[7])
        return count


def step_causes(options, text):
    """Figures of the step that TEXT names, by recorder."""
    import steps
    import torch

    name, batch, length, precision = steps.parse(text)
    try:
        step = steps.training(*steps.MODELS[name](batch, length), precision)
    except steps.Missing as missing:
        return {"skipped": str(missing)}
    for _ in range(3):
        step().item()
    launching = Launching()

    def timed(cause):
        with recording(cause):
            begin = time.perf_counter_ns()
            for _ in range(FIRST):
                step().item()
            torch.cuda.synchronize()
            first = time.perf_counter_ns() - begin
            wall = processor = 0
            faults, all_threads = launching.faults(), time.process_time_ns()
            for _ in range(COUNTED):
                busy, begin = launching.processor_ns(), time.perf_counter_ns()
                loss = step()
                busy = launching.processor_ns() - busy
                loss.item()  # as people log it
                wall += time.perf_counter_ns() - begin
                processor += busy
            all_threads = time.process_time_ns() - all_threads
            faults = launching.faults() - faults
        return {"first_ns": first, "wall_ns": wall / COUNTED, "processor_ns": processor / COUNTED,
                "faults": faults / COUNTED, "process_ns": all_threads / COUNTED}

    import memlab

    with memlab.MemorySnapshot():
        step().item()
    names = [cause for cause in LADDER if cause in options.causes]
    values = interleave(names, options.repeats, timed)
    if {"uses", "uses paused"} <= values.keys():
        values["uses of some"] = [
            {figure: (row[figure] + (EVERY - 1) * paused[figure]) / EVERY for figure in row}
            for row, paused in zip(values["uses"], values["uses paused"], strict=True)]
    result = {"step": text, "events": steps.events_of(step), **steps.host_and_gpu(step),
              "sample_ns": sample_ns(), "fault_ns": fault_ns(),
              "tags_ns": {cause: tags_ns(step, cause) for cause in ("step notes", "file")},
              "causes": {}}
    for place, cause in enumerate(values):
        base = values[BASE.get(cause, list(values)[max(place - 1, 0)])]
        row = result["causes"][cause] = {}
        for figure in values[cause][0]:
            mine = [value[figure] for value in values[cause]]
            row[figure] = spread(mine)
            row[f"{figure}_added"] = over(mine, [value[figure] for value in base])
            row[f"{figure}_over_off"] = over(mine, [value[figure] for value in values["off"]])
    result["parts"] = event_parts(options, step)
    return result


def tags_ns(step, cause):
    """Processor time of the tags of one of STEP's steps, which stand in the step's own hooks."""
    spent = {"before_step": [], "after_step": []}

    def watch(owners, name):
        tag = getattr(owners, name)

        def timed(optimizer):
            begin = time.thread_time_ns()
            tag(optimizer)
            spent[name].append(time.thread_time_ns() - begin)

        setattr(owners, name, timed)

    with recording(cause) as snapshot:
        for name in spent:
            watch(snapshot._owners, name)
        for _ in range(4 * FIRST):
            step().item()
    # The median leaves out the first steps, and those at which lines go to the file.
    return sum(statistics.median(values) for values in spent.values())


def sample_ns():
    """One sample of the host's and the GPU's memory."""
    import memlab
    from memlab import _core

    with memlab.MemorySnapshot():
        begin = time.perf_counter_ns()
        for _ in range(20):
            _core.sample(False)
        return (time.perf_counter_ns() - begin) / 20


def fault_ns():
    """Processor time of a page fault of fresh memory."""
    size = 4096 * mmap.PAGESIZE
    memory = mmap.mmap(-1, size)

    def touch():
        begin = time.thread_time_ns()
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1
        return time.thread_time_ns() - begin

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    first = touch()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    return (first - touch()) / max(faults, 1)


# ---- The parts of an event ----


def event_parts(options, step):
    """The ledger's, the lane's and the file's part of two of STEP's own steps, in ns an event,
    warm and cold; bench/causes_events.c measures it."""
    import torch

    import memlab

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.mlab")
        with memlab.MemorySnapshot(file=path):
            for _ in range(2):
                step().item()
            torch.cuda.synchronize()
        program = build(ROOT / "build" / "causes")
        passes = min(options.repeats, 15)
        done = subprocess.run([program, path, folder, str(passes)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip()}
    parts = json.loads(done.stdout)
    chain = ("none", "ledger", "packing", "file")
    result = {"events": parts.pop("events")}
    for walk, values in parts.items():
        # "file" holds the packing: the last two differ by the file alone.
        result[walk] = {part: over(values[part], values[before])
                        for before, part in zip(chain, chain[1:])}
    return result


def build(folder):
    """The path of causes_events, compiled as memlab's core is."""
    sources = [f for name in CORES for f in sorted((ROOT / "csrc/core" / name).rglob("*.c"))]
    sources.append(ROOT / "bench" / "causes_events.c")
    newest = max(f.stat().st_mtime for f in (ROOT / "csrc" / "core").rglob("*.h"))

    def compiled(source):
        target = folder / source.relative_to(ROOT).with_suffix(".o")
        if not target.exists() or target.stat().st_mtime < max(newest, source.stat().st_mtime):
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cc", "-std=c11", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden",
                            f"-I{ROOT}/csrc", f"-I{ROOT}/csrc/core", "-c", source, "-o", target],
                           check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "causes_events"
    subprocess.run(["cc", "-o", program, *objects, "-lpthread", "-ldl", "-lm"], check=True)
    return program


# ---- An event through torch's allocator ----

RECORDERS = ("torch no stacks", "torch python")
WALKS = (0, 4 << 20)


def event_causes(options):
    """An allocation and its free that the cache answers, 22 Python frames deep, warm and with
    the caches emptied before each; ns an event of processor time over an idle tracker."""
    import torch
    from events import DEPTH, EVENTS, OneSize, settle_depth

    pairs = {0: 2_000 if options.quick else 20_000, 4 << 20: 300 if options.quick else 1_500}
    memory = torch.zeros(max(WALKS) // 8, dtype=torch.int64)[::8]

    class Work(OneSize):
        walk = 0

        def loop(self):
            empty, device, now = torch.empty, torch.device("cuda"), time.thread_time_ns
            if self.walk == 0:
                begin = now()
                for _ in range(self.pairs):
                    empty(4096, device=device)
                return (now() - begin) / self.pairs / 1e9
            total = 0
            for _ in range(self.pairs):
                memory.sum()
                begin = now()
                empty(4096, device=device)
                total += now() - begin
            return total / self.pairs / 1e9

    torch.set_num_threads(1)
    work = Work(200)
    work.extra = DEPTH - 5
    settle_depth(work)
    names = recorders.names(*RECORDERS)
    result = {"depth": DEPTH}
    for walk in WALKS:
        work.walk, work.pairs = walk, pairs[walk]

        def measured(name):
            with recorders.recorder(name):
                return work.run()

        values = interleave(names, options.repeats, measured)
        base = [value / EVENTS * 1e9 for value in values[recorders.OFF]]
        result[str(walk)] = {
            name: over([value / EVENTS * 1e9 for value in mine], base)
            for name, mine in values.items() if name != recorders.OFF
        }
        result[str(walk)]["torch's own"] = spread(base)
    return result


if __name__ == "__main__":
    main()
