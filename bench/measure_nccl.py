"""What NCCL takes of each GPU's memory, call by call, and what whole programs take on
several ranks: the figures behind csrc/phantom/libraries/nccl_memory.c.

    python bench/measure_nccl.py --out nccl.json                  # on two GPUs, some minutes
    python bench/measure_nccl.py --only first_ program_ --out nccl.json
    python bench/measure_nccl.py --ranks 4 2 --gpus 4 --only world_ --out worlds.json
    python bench/measure_nccl.py --list

Each scenario runs in processes of its own, which have the environment that torchrun gives,
one rank a GPU.  On more GPUs than a scenario has ranks, several run at once, each on GPUs of
its own.  They stop at points: there
every rank has synchronised and waits for the others, and it is told what the device and
the process use (cudaMemGetInfo, NVML), what torch's allocator holds of it, and what
NCCL's own log (NCCL_DEBUG_SUBSYS=ALLOC) says that it allocated since the point before.
Bytes.  NVLink multicast stays off (NCCL_NVLS_ENABLE=0) unless the environment says
otherwise.
"""

import argparse
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import pickle
import queue
import re
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
PROGRAMS = HERE.parents[1] / "tests" / "programs"
MIB = 1 << 20
# What each first call is made with, and what follows it.
CALLS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "send_recv",
    "barrier",
)
SIZES = (4 << 10, MIB, 64 * MIB)
VARIANTS = {
    "buffers_1mib": {"NCCL_BUFFSIZE": str(MIB)},
    "buffers_8mib": {"NCCL_BUFFSIZE": str(8 * MIB)},
    "channels_4": {"NCCL_MAX_NCHANNELS": "4"},
    "no_cumem": {"NCCL_CUMEM_ENABLE": "0"},
    "connect_at_once": {"NCCL_RUNTIME_CONNECT": "0"},
    "no_p2p": {"NCCL_P2P_DISABLE": "1"},
    "ring_simple": {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"},
    "eager_modules": {"CUDA_MODULE_LOADING": "EAGER"},
}
KINDS = (
    "ddp",
    "ddp_view",
    "ddp_unused",
    "fsdp1",
    "fsdp2",
    "fsdp2_keep",
    "fsdp2_mixed",
    "tp",
)


# Program and argument of the worlds that memlab fit is held against, and their least ranks.
WORLDS = {
    **{
        kind: ("world", kind, 2)
        for kind in (
            "ddp ddp_view fsdp1 fsdp2 fsdp2_keep fsdp2_mixed tp cp pp_gpipe pp_1f1b "
            "pp_inferred pp_loops ep zero offload"
        ).split()
    },
    **{kind: ("world", kind, 4) for kind in ("hsdp", "tp_fsdp2")},
    # Of experts: as many rows to each, all to rank 0's, and as a gate chooses.
    "ep_even": ("experts", "even", 2),
    "ep_all": ("experts", "all", 2),
    "ep_gate": ("experts", None, 2),
}


def scenarios(size):
    """Name to (what the ranks do, more environment), in a world of SIZE."""
    found = {"sequence": (["sequence"], {})}
    for call in CALLS:
        found[f"first_{call}"] = (["call", call], {})
    found["device_id"] = (["call", "all_reduce", "--device-id"], {})
    found["one_rank"] = (["call", "all_reduce"], {"WORLD_SIZE": "1"})
    if size >= 4:
        found["pairs"] = (["pairs"], {})
    found["groups"] = (["groups"], {})
    # Where the device is given, further communicators are split from the first.
    found["groups_device_id"] = (["groups", "--device-id"], {})
    for kind in KINDS:
        found[f"program_{kind}"] = (["program", kind], {})
    for kind, (_, _, least) in WORLDS.items():
        if size >= least:
            found[f"world_{kind}"] = (["world", kind], {})
    for name, variables in VARIANTS.items():
        found[name] = (["call", "all_reduce"], variables)
    return found


# ---- In each rank ----


def nvml_processes(index):
    """Bytes of each process on the device, as NVML lists them; None without NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {
            "used": pynvml.nvmlDeviceGetMemoryInfo(handle).used,
            "own_pid": os.getpid(),
            "processes": [[p.pid, p.usedGpuMemory] for p in listed],
        }
    except pynvml.NVMLError as error:
        return {"error": str(error)}


class Log:
    """What NCCL has written to its log since the last look."""

    def __init__(self, path):
        self.path, self.at = path, 0

    def since(self):
        if not os.path.exists(self.path):
            return {"lines": []}
        with open(self.path, "rb") as file:
            file.seek(self.at)
            text = file.read()
        self.at += len(text)
        counts = collections.Counter(
            # Without who and where: host:pid:tid [0] NCCL INFO, addresses, channels.
            re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"Channel \d+", "Channel N", line))
            for line in map(self.message, text.decode(errors="replace").splitlines())
            if re.search(r"(?i)alloc|memory used|channel|connected|buff|/dev/shm|init c", line)
        )
        return {"lines": [[count, line] for line, count in counts.items()][:400]}

    @staticmethod
    def message(line):
        return line.split(" NCCL INFO ", 1)[-1]


class Points:
    """What is used of the memory at the points of one rank."""

    def __init__(self, rank):
        import torch

        self.torch, self.rank = torch, rank
        self.log = Log(os.environ["NCCL_DEBUG_FILE"])
        self.rows, self.store = [], None

    def at(self, name):
        torch = self.torch
        torch.cuda.synchronize()
        if self.store is not None:
            self.store.meet(name)
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        self.rows.append(
            {
                "point": name,
                "used": total - free,
                "reserved": reserved,
                "allocated": torch.cuda.memory_allocated(),
                "outside": total - free - reserved,
                "allocated_peak": torch.cuda.max_memory_allocated(),
                "reserved_peak": torch.cuda.max_memory_reserved(),
                "nvml": nvml_processes(int(os.environ["FIRST_GPU"]) + self.rank),
                "nccl": self.log.since(),
            }
        )
        if self.store is not None:
            self.store.meet(name + " told")


class Meeting:
    """Where ranks wait for each other without NCCL: torch's own store."""

    def __init__(self, rank, size):
        import datetime

        import torch.distributed as dist

        self.size = size
        self.store = dist.TCPStore(
            "127.0.0.1",
            int(os.environ["MEETING_PORT"]),
            size,
            rank == 0,
            datetime.timedelta(seconds=90),
        )
        self.met = 0

    def meet(self, name):
        self.met += 1
        key = f"{self.met} {name}"
        if self.store.add(key, 1) == self.size:
            self.store.set(f"all {key}", "1")
        self.store.wait([f"all {key}"])

    def leave(self, rank):
        """Rank 0 last: it serves the store."""
        if self.store.add("left", 1) == self.size:
            self.store.set("all left", "1")
        if rank == 0:
            self.store.wait(["all left"])


def one_call(name, group, count):
    """One collective of COUNT bytes in all; what it needs is freed by torch only."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(group), dist.get_world_size(group)
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    whole = torch.zeros(max(count // 4, size), device="cuda")
    part = whole[: whole.numel() // size].clone()
    whole = whole[: part.numel() * size]
    if name == "all_reduce":
        dist.all_reduce(whole, group=group)
    elif name == "all_gather":
        dist.all_gather_into_tensor(whole, part, group=group)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(part, whole, group=group)
    elif name == "broadcast":
        dist.broadcast(whole, members[0], group=group)
    elif name == "reduce":
        dist.reduce(whole, members[0], group=group)
    elif name == "all_to_all":
        dist.all_to_all_single(torch.empty_like(whole), whole, group=group)
    elif name == "barrier":
        dist.barrier(group=group)
    elif name == "send_recv" and size > 1:
        peers = members[(rank + 1) % size], members[rank - 1]
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, whole, peers[0], group),
                dist.P2POp(dist.irecv, torch.empty_like(whole), peers[1], group),
            ]
        )
        for work in works:
            work.wait()
    torch.cuda.synchronize()


def begin(points, device_id=False):
    import torch
    import torch.distributed as dist

    torch.zeros(1, device="cuda")
    points.at("context")
    matrix = torch.zeros(512, 512, device="cuda")
    matrix @ matrix
    points.at("cuBLAS")
    more = {"device_id": torch.device("cuda", points.rank)} if device_id else {}
    dist.init_process_group("nccl", **more)
    points.at("init_process_group")


def do_call(points, options):
    begin(points, options.device_id)
    for size in SIZES:
        one_call(options.name, None, size)
        points.at(f"{options.name} {size}")


def do_sequence(points, options):
    begin(points)
    for size in SIZES:
        for call in CALLS:
            one_call(call, None, size)
            points.at(f"{call} {size}")


def do_groups(points, options):
    """More communicators: what each adds, and what is given back."""
    import torch.distributed as dist

    begin(points, options.device_id)
    one_call("all_reduce", None, MIB)
    points.at("first communicator")
    ranks = list(range(dist.get_world_size()))
    groups = [dist.new_group(ranks) for _ in range(3)]
    points.at("new_group three times")
    for number, group in enumerate(groups):
        for call in ("all_reduce", "all_gather", "reduce_scatter", "all_reduce"):
            one_call(call, group, MIB)
            points.at(f"group {number} {call}")
    dist.destroy_process_group(groups[0])
    points.at("group 0 destroyed")
    dist.destroy_process_group()
    points.at("all destroyed")


def do_pairs(points, options):
    """Communicators of two of the ranks, and who sends to whom in the whole."""
    import torch.distributed as dist

    begin(points, options.device_id)
    rank, size = dist.get_rank(), dist.get_world_size()
    one_call("all_reduce", None, MIB)
    points.at("first communicator")
    for apart in (1, size // 2):
        # 0 and 1, 2 and 3; then 0 and 2, 1 and 3.
        first = [i for i in range(size) if i // apart % 2 == 0]
        groups = {i: dist.new_group([i, i + apart]) for i in first}
        own = groups[rank if rank in groups else rank - apart]
        for call in ("all_reduce", "all_gather", "broadcast", "send_recv"):
            one_call(call, own, MIB)
            points.at(f"pairs {apart} apart {call}")
    for call in ("send_recv", "all_to_all"):
        one_call(call, None, MIB)
        points.at(f"whole {call}")


def do_world(points, options):
    """One of WORLDS in this very process, and its allocator's statistics at the end."""
    import importlib

    import torch

    program, argument, _ = WORLDS[options.name]
    sys.path.insert(0, str(PROGRAMS))
    module = importlib.import_module(program)
    torch.cuda.synchronize()
    points.at("context")

    def at(point):
        torch.cuda.synchronize()
        # What a collective held is let go by a thread of torch's that looks each 100 ms.
        time.sleep(0.2)
        points.at(point)

    module.train(argument, at=at)
    points.rows[-1]["stats"] = torch.cuda.memory_stats()


def do_program(points, options):
    """The program in this very process, with a trace of its allocator."""
    import torch

    sys.path.insert(0, str(PROGRAMS))
    import ranks_train

    torch.cuda.memory._record_memory_history(context=None, max_entries=1 << 20)
    figures = ranks_train.train(options.name)
    points.rows.append({"point": "program", **figures})
    if options.traces and points.rank == 0:
        # Nothing of it but numbers: torch's own form, without stacks.
        snapshot = torch.cuda.memory._snapshot()
        path = os.path.join(options.traces, f"ranks_{options.name}.pickle.gz")
        with gzip.open(path, "wb") as file:
            pickle.dump(snapshot, file)


def rank_main(options):
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    points = Points(rank)
    points.store = Meeting(rank, size)
    {
        "call": do_call,
        "sequence": do_sequence,
        "groups": do_groups,
        "pairs": do_pairs,
        "world": do_world,
        "program": do_program,
    }[options.what](points, options)
    told = {
        "rank": rank,
        "gpu": torch.cuda.get_device_name(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "points": points.rows,
    }
    pathlib.Path(options.result).write_text(json.dumps(told))
    points.store.leave(rank)
    # What is left to tear down tells nothing, and may wait for a peer.
    os._exit(0)


# ---- The ranks of each scenario ----


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_scenario(arguments, variables, size, first_gpu, options, folder):
    """What each of SIZE ranks told, or why not; rank 0 has the device FIRST_GPU."""
    port, meeting = free_ports(2)
    children, results, errors = [], [], []
    for rank in range(size):
        results.append(pathlib.Path(folder, f"rank{rank}.json"))
        errors.append(pathlib.Path(folder, f"rank{rank}.err"))
        environment = {
            "NCCL_NVLS_ENABLE": "0",
            **os.environ,
            **variables,
            "CUDA_VISIBLE_DEVICES": ",".join(str(first_gpu + i) for i in range(size)),
            "FIRST_GPU": str(first_gpu),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "MEETING_PORT": str(meeting),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ALLOC,GRAPH,P2P,SHM",
            "NCCL_DEBUG_FILE": os.path.join(folder, f"nccl{rank}.log"),
        }
        command = [sys.executable, str(HERE), "--result", str(results[-1])]
        if options.traces:
            command += ["--traces", options.traces]
        with open(errors[-1], "w") as said:
            children.append(
                subprocess.Popen(
                    [*command, "--rank-does", *arguments],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                )
            )
    late = wait_for(children, time.monotonic() + options.limit)
    told = [json.loads(path.read_text()) for path in results if path.exists()]
    failed = [
        path.read_text()[-3000:] + (f"\nended after {options.limit} s" if late else "")
        for path, child in zip(errors, children)
        if child.returncode != 0
    ]
    return {"environment": variables, "size": size, "ranks": told, "errors": failed}


def wait_for(children, deadline):
    """Until all have ended; where one fails, the others, which wait for it, have 3 seconds.
    True: they did not end before DEADLINE.
    """
    failed = False
    while any(child.poll() is None for child in children):
        if not failed and any(child.poll() for child in children):
            failed, deadline = True, min(deadline, time.monotonic() + 3)
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
                child.wait()
            return not failed
        time.sleep(0.1)
    return False


def brief(name, told):
    """A few lines for whoever waits."""
    for said in told["errors"]:
        # The error, and not what NCCL's threads say after it.
        lines = said.strip().splitlines()
        error = r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b"
        named = [line for line in lines if re.match(error, line)]
        print(f"{name}: FAILED: {(named or lines)[-1:]}")
    for rank in told["ranks"][:1]:
        if name.startswith("world_"):
            last = rank["points"][-1]
            figures = ("allocated_peak", "reserved_peak", "outside")
            print(name, *(f"{figure} {last[figure] / MIB:.2f} MiB" for figure in figures))
            continue
        before = None
        for row in rank["points"]:
            if row["point"] == "program":
                print(f"{name}: {json.dumps(row)}")
                continue
            step = 0 if before is None else row["outside"] - before
            before = row["outside"]
            print(
                f"{name:28} {row['point']:26} outside torch "
                f"{row['outside'] / MIB:9.2f} MiB  {step / MIB:+9.2f}"
            )
    sys.stdout.flush()


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--gpus", type=int, help="how many there are; else the most ranks")
    parser.add_argument("--out", help="where the JSON goes")
    parser.add_argument("--traces", help="a folder for the programs' allocator traces")
    parser.add_argument("--only", nargs="+", help="names of scenarios, or a beginning")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--limit", type=int, default=90, help="seconds for a scenario")
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--rank-does", dest="does", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--device-id", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.does:
        options.what, options.name = (*options.does, None)[:2]
    return options


def main():
    options = parse(sys.argv[1:])
    if options.does:
        return rank_main(options)
    chosen = [
        (name, size, *scenario)
        for size in options.ranks
        for name, scenario in scenarios(size).items()
        if not options.only or any(name.startswith(o) for o in options.only)
    ]
    if options.list:
        print("\n".join(f"{name} of {size}" for name, size, _, _ in chosen))
        return 0
    if options.traces:
        os.makedirs(options.traces, exist_ok=True)
    answers, began = {}, time.monotonic()
    for size in options.ranks:
        places = (options.gpus or max(options.ranks)) // size
        free = queue.SimpleQueue()
        for place in range(places):
            free.put(place * size)

        def answer(scenario):
            name, _, arguments, variables = scenario
            ranks = int(variables.get("WORLD_SIZE", size))
            first_gpu = free.get()
            for _ in range(2):
                with tempfile.TemporaryDirectory() as folder:
                    found = run_scenario(
                        arguments, variables, ranks, first_gpu, options, folder
                    )
                # A port was free when it was chosen, and then another's.
                if not any("EADDRINUSE" in said for said in found["errors"]):
                    break
            free.put(first_gpu)
            return f"{name} of {ranks}", found

        with concurrent.futures.ThreadPoolExecutor(places) as pool:
            of_size = [scenario for scenario in chosen if scenario[1] == size]
            for name, found in pool.map(answer, of_size):
                answers[name] = found
                brief(name, found)
                if options.out:
                    # After each: a run that is cut short leaves what it has.
                    pathlib.Path(options.out).write_text(json.dumps(answers))
    print(f"{len(answers)} scenarios in {time.monotonic() - began:.0f} s")
    return 1 if any(each["errors"] for each in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
