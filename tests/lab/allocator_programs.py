"""Random programs for torch's caching allocator: what they ask of it, and what it did.

    python allocator_programs.py FILE --seed SEED --events COUNT

runs programs on a device, the phantom or a real one, until torch has traced COUNT events,
and writes to FILE what each asked, every event of torch's own trace, the segments and
blocks at the end and torch's statistics, as lines of words and numbers that
tests/helpers/allocator_trace.c reads.  `--again FILE` runs the requests of a
file's programs anew, so a failing program can be cut down.  Knows nothing of the model.
"""

import argparse
import collections
import ctypes
import itertools
import os
import random
import signal
import sys
import traceback

KIB, MIB = 1 << 10, 1 << 20
STREAMS = 4

#: Sizes at which the allocator decides something, in bytes.
EDGES = [
    512, 1024, 4096, 512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 10 * MIB, 16 * MIB,
    20 * MIB, 32 * MIB, 40 * MIB, 64 * MIB, 128 * MIB,
]  # fmt: skip

#: Of address space, which torch takes for an expandable segment.  The device has 8 GiB.
RESERVES = ["0.1", "0.5", "1G", "2.5G", "20G"]

#: How torch ends a process where it fails an assertion in a destructor, or reads what it
#: has freed: after a program, when its pools are dropped.
ENDS = (signal.SIGABRT, signal.SIGSEGV)

Program = collections.namedtuple("Program", "seed conf fraction ballast requests")


# --- What a program asks --------------------------------------------------------------


def divisions(r):
    """A value of roundup_power2_divisions."""
    powers = [0, 1, 2, 4, 8, 16, 32]
    if r.random() < 0.5:
        return str(r.choice(powers[1:]))
    keys = sorted(r.sample([1, 2, 4, 16, 64, 128, 256], r.randint(1, 4)))
    pairs = [f"{key}:{r.choice(powers[1:])}" for key in keys]
    if r.random() < 0.7:
        pairs.append(f">:{r.choice(powers[1:])}")
    return "[" + ",".join(pairs) + "]"


def lasting_settings(r, version, rounding, reserve):
    """The settings that a program keeps: to change them while it has memory makes torch
    hand the driver what the driver refuses.  All that torch would keep from the program
    before are among them."""
    keys = [f"expandable_segments:{r.random() < 0.35}"]
    large = 20
    if version >= 211:
        large = r.choice([20] * 10 + [11, 12, 24, 40, 64])
        keys.append(f"large_segment_size_mb:{large}")
    if reserve:
        keys.append(
            f"expandable_segments_reserve:{r.choice(['1.125'] * 4 + RESERVES)}"
        )
    if rounding:
        keys.append(f"max_non_split_rounding_mb:{large + r.choice([1, 5, 20, 80])}")
    if r.random() < 0.4:
        keys.append(f"max_split_size_mb:{large + r.choice([1, 4, 12, 30, 80, 200])}")
    return keys


def settings(r, version, lasting):
    """A value of PYTORCH_CUDA_ALLOC_CONF.  What is not named goes back to its default."""
    keys = list(lasting)
    if r.random() < 0.3:
        keys.append(f"roundup_power2_divisions:{divisions(r)}")
    if r.random() < 0.4:
        threshold = r.choice([0.05, 0.2, 0.5, 0.8, 0.95])
        keys.append(f"garbage_collection_threshold:{threshold}")
    if version >= 212:
        keys.append(f"throw_on_cudamalloc_oom:{r.random() < 0.2}")
    return ",".join(keys)


def a_fraction(r):
    return 1.0 if r.random() < 0.3 else round(r.uniform(0.02, 0.3), 3)


def request_bytes(r, shape, before):
    """How much a malloc asks for; BEFORE are earlier sizes, which come again often, so
    that equal free blocks are chosen among."""
    if before and r.random() < 0.35:
        return r.choice(before)
    kind = r.choices(("edge", "small", "middle", "large", "huge", "most"), shape)[0]
    if kind == "edge":
        return max(1, r.choice(EDGES) + r.choice([-512, -1, 0, 0, 1, 512]))
    low, high = {
        "small": (1, MIB),
        "middle": (MIB, 10 * MIB),
        "large": (10 * MIB, 60 * MIB),
        "huge": (60 * MIB, 400 * MIB),
        "most": (400 * MIB, 12 << 30),
    }[kind]
    return int(low * (high / low) ** r.random())


class Chooser:
    """Makes requests one by one, told through `live` of what torch granted."""

    def __init__(self, r, version, lasting, capped, count):
        self.r = r
        self.version = version
        self.lasting = lasting
        self.capped = capped
        self.count = count
        self.live = set()  # slots that hold a block, kept by the Runner
        self.slots = 0
        self.sizes = []
        self.shape = r.choice(
            [
                (3, 10, 4, 2, 0, 0),
                (2, 2, 4, 4, 1, 0.1),
                (4, 30, 2, 1, 0, 0),
                (2, 0, 5, 5, 2, 0.2),
            ]
        )
        self.streams = r.choice([1, 1, 2, STREAMS])
        self.sharing = r.choice([0, 0, 0.05, 0.3]) if self.streams > 1 else 0
        self.emptying = r.choice([0, 0.002, 0.01])
        self.pooling = r.choice([0, 0, 0, 0.02, 0.05])
        if version <= 207 and "expandable_segments:True" in lasting:
            self.pooling = 0  # which torch refused
        # Torch counts the memory of expandable segments in pools wrongly: it gives up a pool
        # that has blocks, or fails an assertion.
        self.dropping = "expandable_segments:True" not in lasting
        self.changing = r.choice([0, 0, 0, 0, 0.01])
        self.fill = r.choice([10, 40, 120])  # about how many blocks live at a time
        self.pools = {}  # index -> whether it is being allocated to
        self.made_pools = 0

    def __iter__(self):
        for _ in range(self.count):
            yield self.request()

    def request(self):
        r = self.r
        draw = r.random()
        if draw < self.emptying:
            return ("empty_cache",)
        if draw < self.emptying + self.pooling:
            return self.pool_request()
        if draw < self.emptying + self.pooling + self.sharing and self.live:
            slot = r.choice(sorted(self.live))
            return ("record_stream", slot, r.randrange(self.streams))
        if r.random() < self.changing:
            if self.capped and r.random() < 0.5:
                return ("fraction", a_fraction(r))
            return ("settings", settings(r, self.version, self.lasting))
        # The number of live blocks wanders about the fill, now and then down to few.
        if self.live and r.random() < 0.5 * min(1.9, len(self.live) / self.fill):
            live = sorted(self.live)
            newest = r.random() < 0.4
            return ("free", live[-1 - int(len(live) * r.random() ** 3)] if newest
                    else r.choice(live))  # fmt: skip
        size = request_bytes(r, self.shape, self.sizes[-40:])
        self.sizes.append(size)
        self.slots += 1
        return ("malloc", self.slots, size, r.randrange(self.streams))

    def pool_request(self):
        r = self.r
        begun = [index for index, open_ in self.pools.items() if open_]
        idle = [index for index, open_ in self.pools.items() if not open_]
        if begun and r.random() < 0.6:
            self.pools[begun[-1]] = False
            return ("end", begun[-1])
        if self.dropping and idle and not begun and r.random() < 0.3:
            index = r.choice(idle)
            del self.pools[index]
            return ("drop", index)
        if idle and r.random() < 0.8:
            index = r.choice(idle)
            self.pools[index] = True
            return ("begin", index)
        self.made_pools += 1
        self.pools[self.made_pools] = False
        no_split = self.version >= 211 and r.random() < 0.3
        use_on_oom = self.version >= 208 and r.random() < 0.3
        return ("create", self.made_pools, int(no_split), int(use_on_oom))


def programs(seed, runner, requests=400):
    """Programs without end for a RUNNER.  The first third of every 60 set no fraction of
    the memory, which torch cannot take back."""
    memory = runner.memory_free()
    rounding = random.Random(seed).random() < 0.5  # or never: torch would keep it
    for index in itertools.count():
        name = f"{seed}-{index}"
        r = random.Random(name)
        fraction = 0.0
        if index >= 20:
            fraction = a_fraction(r)
        left = int(memory * r.choice([0.02, 0.05, 0.1, 0.3, 1]))
        ballast = max(0, (memory - left) // (2 * MIB) * (2 * MIB))
        lasting = lasting_settings(r, runner.version, rounding, runner.reserve)
        conf = settings(r, runner.version, lasting)
        chooser = Chooser(r, runner.version, lasting, fraction > 0, requests)
        yield Program(name, conf, fraction, ballast, chooser)


# --- What torch does ------------------------------------------------------------------


class Runner:
    """Runs programs on device 0 and writes down what was asked and what happened."""

    def __init__(self, file):
        import torch

        self.torch = torch
        self.file = file
        self.events = 0
        major, minor = torch.__version__.split(".")[:2]
        self.version = int(major) * 100 + int(minor)
        torch.cuda.init()
        self.device = torch.device("cuda", 0)
        default = torch.cuda.default_stream()
        self.streams = [default, *(torch.cuda.Stream() for _ in range(STREAMS - 1))]
        self.cuda = ctypes.CDLL(None)
        self.set_settings = (
            getattr(torch._C, "_accelerator_setAllocatorSettings", None)
            or torch._C._cuda_cudaCachingAllocator_set_allocator_settings  # up to 2.8
        )
        # Of the versions that know it, each program sets it, as torch keeps it.
        try:
            self.set_settings("expandable_segments_reserve:1.125")
            self.reserve = True
        except (RuntimeError, ValueError):
            self.reserve = False
        self.memory_ends = self.memory_end()

    def memory_end(self):
        """The address at which the device's memory ends, where nothing of it is taken."""
        most = 1 << 40
        address = ctypes.c_void_p()
        size = ctypes.c_size_t(most)
        if self.cuda.cuMemAddressReserve(ctypes.byref(address), size, 0, 0, 0):
            raise MemoryError("no address space")
        self.cuda.cuMemAddressFree(address, size)
        return address.value + most

    def write(self, *words):
        self.lines.append(" ".join(map(str, words)))

    def memory_free(self):
        return self.torch.cuda.mem_get_info(self.device)[0]

    def run(self, program):
        """Runs it; whether another can be run after it."""
        torch = self.torch
        ballast = ctypes.c_void_p()
        if program.ballast:
            size = ctypes.c_size_t(program.ballast)
            if self.cuda.cudaMalloc(ctypes.byref(ballast), size):
                raise MemoryError(f"no {program.ballast} bytes of ballast")
        self.set_settings(program.conf)
        if program.fraction:
            torch.cuda.set_per_process_memory_fraction(program.fraction, self.device)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        total = torch.cuda.mem_get_info(self.device)[1]
        self.lines = []
        self.write("program", program.seed, self.version, program.conf)
        self.write("device", program.fraction, program.ballast, self.memory_free(),
                   total, self.memory_ends)  # fmt: skip
        torch.cuda.memory._record_memory_history("all", context=None, stacks="python")
        self.blocks = {}
        self.pools = {}
        self.begun = []  # pools, the innermost last
        self.routes = []  # torch's contexts for them
        live = getattr(program.requests, "live", set())
        for request in program.requests:
            try:
                self.ask(request, live)
            except RuntimeError as error:
                return self.broken(error)
        while self.begun:  # of pools in use torch 2.7 shows nothing else
            self.end(live, self.begun[-1])
        snapshot = torch.cuda.memory._snapshot()
        statistics = torch._C._cuda_memoryStats(0)
        torch.cuda.memory._record_memory_history(None)
        self.write_trace(snapshot)
        self.write_statistics("", statistics)
        self.write("finished")
        self.file.writelines(line + "\n" for line in self.lines)
        self.file.flush()
        try:
            self.clean_up()
        except RuntimeError as error:
            return self.broken(error)
        if ballast:
            self.cuda.cudaFree(ballast)
        # Torch keeps address space to which it could not map memory; the next program
        # should not find it.
        return self.memory_end() == self.memory_ends

    def broken(self, error):
        """False, for a fault of torch after which its allocator is of no more use."""
        if "INTERNAL ASSERT FAILED" not in str(error):
            raise error
        print(f"torch failed: {error}", file=sys.stderr)
        return False

    def ask(self, request, live):
        """Makes one request where it can be made, and writes it if it was."""
        kind, *arguments = request
        getattr(self, kind)(live, *arguments)

    def malloc(self, live, slot, size, stream):
        torch = self.torch
        torch.cuda.set_stream(self.streams[stream])
        try:
            block = torch.empty(size, dtype=torch.uint8, device=self.device)
        except torch.OutOfMemoryError:
            address = 0
        else:
            self.blocks[slot] = block
            live.add(slot)
            address = block.data_ptr()
        self.write("malloc", slot, size, stream, self.pointer(stream), address)

    def free(self, live, slot):
        if slot in self.blocks:
            self.write("free", slot)
            live.discard(slot)
            del self.blocks[slot]

    def record_stream(self, live, slot, stream):
        if slot in self.blocks:
            self.write("record_stream", slot, stream, self.pointer(stream))
            self.blocks[slot].record_stream(self.streams[stream])

    def empty_cache(self, live):
        self.write("empty_cache")
        self.torch.cuda.empty_cache()

    def settings(self, live, conf):
        self.write("settings", conf)
        self.set_settings(conf)

    def fraction(self, live, fraction):
        self.write("fraction", fraction)
        self.torch.cuda.set_per_process_memory_fraction(fraction, self.device)

    def create(self, live, index, no_split, use_on_oom):
        flags = {}
        if no_split:
            flags["no_split"] = True
        if use_on_oom:
            flags["use_on_oom"] = True
        pool = self.torch.cuda.MemPool(**flags)
        self.pools[index] = pool
        self.write("create", index, no_split, use_on_oom, *pool.id)

    def begin(self, live, index):
        if index in self.pools and index not in self.begun:
            self.write("begin", index)
            self.begun.append(index)
            self.routes.append(self.torch.cuda.use_mem_pool(self.pools[index]))
            self.routes[-1].__enter__()

    def end(self, live, index):
        if self.begun and self.begun[-1] == index:
            self.write("end", index)
            self.begun.pop()
            self.routes.pop().__exit__(None, None, None)

    def drop(self, live, index):
        # While another pool is allocated to, torch 2.11 aborts the process.
        if index in self.pools and not self.begun:
            self.write("drop", index)
            del self.pools[index]

    def pointer(self, stream):
        return self.streams[stream].cuda_stream

    def write_trace(self, snapshot):
        for event in snapshot["device_traces"][0]:
            action = event["action"]
            self.events += 1
            self.write("event", action, event.get("addr", event.get("device_free")),
                       event["size"], event["stream"],
                       *event.get("pool_id", ("-", "-")))  # fmt: skip
        for segment in snapshot["segments"]:
            self.write("segment", segment["address"], segment["total_size"],
                       segment["stream"], segment["segment_type"],
                       int(segment["is_expandable"]),
                       *segment["segment_pool_id"])  # fmt: skip
            for block in segment["blocks"]:
                self.write("block", block["address"], block["size"],
                           block["requested_size"], block["state"])  # fmt: skip

    def write_statistics(self, prefix, values):
        for name, value in values.items():
            if isinstance(value, dict):
                self.write_statistics(f"{prefix}{name}.", value)
            elif isinstance(value, int):
                self.write("statistic", prefix + name, value)

    def clean_up(self):
        """Gives everything back, so that the next program finds an empty device."""
        torch = self.torch
        self.set_settings("expandable_segments:False")
        self.blocks.clear()
        self.pools.clear()
        torch.cuda.set_stream(self.streams[0])
        torch.cuda.empty_cache()
        if torch.cuda.memory_reserved():
            raise RuntimeError(f"{torch.cuda.memory_reserved()} bytes stay reserved")


def read(path):
    """The programs of a file that a Runner wrote, without what happened."""
    program = None
    with open(path, encoding="ascii") as file:
        for line in file:
            kind, *words = line.split()
            if kind == "program":
                program = [words[0], words[2]]
                requests = []
            elif kind == "device":
                program += [float(words[0]), int(words[1]), requests]
            elif kind == "malloc":
                requests.append((kind, *map(int, words[:3])))
            elif kind == "record_stream":
                requests.append((kind, *map(int, words[:2])))
            elif kind == "create":
                requests.append((kind, *map(int, words[:3])))
            elif kind == "settings":
                requests.append((kind, words[0]))
            elif kind == "fraction":
                requests.append((kind, float(words[0])))
            elif kind in ("free", "empty_cache", "begin", "end", "drop"):
                requests.append((kind, *map(int, words)))
            elif kind == "finished":
                yield Program(*program)


def run_some(path, chosen, most, left):
    """Runs up to MOST programs of the iterator CHOSEN, made for a Runner, in a process of
    their own, until LEFT events were traced, and returns how many were.  Torch's
    allocator cannot be made anew, some programs leave it unable to give its memory back,
    and there are versions in which some end the process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with open(path, "a", encoding="ascii") as file:
                runner = Runner(file)
                told = 0
                for program in itertools.islice(chosen(runner), most):
                    again = runner.run(program)
                    os.write(writer, b"%d\n" % (runner.events - told))
                    told = runner.events
                    if not again or runner.events >= left:
                        break
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        events = sum(map(int, file))
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in ENDS:
        print("torch ended a process", file=sys.stderr)
    elif status:
        raise SystemExit(f"a process that ran programs ended with {status}")
    return events


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--again")
    options = parser.parse_args()
    with open(options.file, "w", encoding="ascii"):
        pass
    import torch

    if options.again:
        for program in read(options.again):
            run_some(options.file, lambda _, p=program: iter([p]), 1, sys.maxsize)
        return
    events = group = 0
    while events < options.events:
        events += run_some(
            options.file,
            lambda runner, group=group: programs(f"{options.seed}-{group}", runner),
            60,
            options.events - events,
        )
        group += 1
    print(f"torch {torch.__version__}: {events} events", file=sys.stderr)


if __name__ == "__main__":
    main()
