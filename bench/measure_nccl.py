"""What NCCL takes of each GPU's memory, call by call, and what whole programs take on
several ranks: the figures behind csrc/phantom/libraries/nccl_memory.c.

    python bench/measure_nccl.py --out nccl.json                  # on two GPUs, some minutes
    python bench/measure_nccl.py --only first_ program_ --out nccl.json
    python bench/measure_nccl.py --list

Each scenario runs in processes of its own, one rank a GPU, and stops at points: there
every rank has synchronised and waits for the others, and it is told what the device and
the process use (cudaMemGetInfo, NVML), what torch's allocator holds of it, and what
NCCL's own log (NCCL_DEBUG_SUBSYS=ALLOC) says that it allocated since the point before.
Bytes.  NVLink multicast stays off (NCCL_NVLS_ENABLE=0) unless the environment says
otherwise.
"""

import argparse
import collections
import gzip
import json
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
PROGRAM = HERE.parents[1] / "tests" / "programs" / "ranks_train.py"
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


def scenarios():
    """Name to (what the ranks do, more environment)."""
    found = {"sequence": (["sequence"], {})}
    for call in CALLS:
        found[f"first_{call}"] = (["call", call], {})
    found["device_id"] = (["call", "all_reduce", "--device-id"], {})
    found["one_rank"] = (["call", "all_reduce"], {"WORLD_SIZE": "1"})
    found["groups"] = (["groups"], {})
    # Where the device is given, further communicators are split from the first.
    found["groups_device_id"] = (["groups", "--device-id"], {})
    for kind in KINDS:
        found[f"program_{kind}"] = (["program", kind], {})
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
            if re.search(r"(?i)alloc|memory used|channel|connected|buff|/dev/shm", line)
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
                "nvml": nvml_processes(self.rank),
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
        dist.broadcast(whole, 0, group=group)
    elif name == "reduce":
        dist.reduce(whole, 0, group=group)
    elif name == "all_to_all":
        dist.all_to_all_single(torch.empty_like(whole), whole, group=group)
    elif name == "barrier":
        dist.barrier(group=group)
    elif name == "send_recv" and size > 1:
        peers = (rank + 1) % size, (rank - 1) % size
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


def do_program(points, options):
    """The program in this very process, with a trace of its allocator."""
    import torch

    sys.path.insert(0, str(PROGRAM.parent))
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


def run_scenario(arguments, variables, options, folder):
    """What each rank told, or why not."""
    size = int(variables.get("WORLD_SIZE", options.ranks))
    port, meeting = free_ports(2)
    children, results = [], []
    for rank in range(size):
        result = os.path.join(folder, f"rank{rank}.json")
        results.append(result)
        environment = {
            "NCCL_NVLS_ENABLE": "0",
            **os.environ,
            **variables,
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
        command = [sys.executable, str(HERE), "--result", result]
        if options.traces:
            command += ["--traces", options.traces]
        children.append(
            subprocess.Popen(
                [*command, "--rank-does", *arguments],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    deadline = time.monotonic() + options.limit
    errors = []
    for child in children:
        try:
            _, said = child.communicate(timeout=max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            _, said = child.communicate()
            said = f"ended after {options.limit} s\n" + said
        if child.returncode != 0:
            errors.append(said[-3000:])
    told = [
        json.loads(pathlib.Path(path).read_text())
        for path in results
        if os.path.exists(path)
    ]
    for path in results:
        if os.path.exists(path):
            os.unlink(path)
    return {"environment": variables, "ranks": told, "errors": errors}


def brief(name, told):
    """A few lines for whoever waits."""
    for said in told["errors"]:
        print(f"{name}: FAILED: {said.strip().splitlines()[-1:]}")
    for rank in told["ranks"][:1]:
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
    parser.add_argument("--ranks", type=int, default=2)
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
    chosen = {
        name: scenario
        for name, scenario in scenarios().items()
        if not options.only or any(name.startswith(o) for o in options.only)
    }
    if options.list:
        print("\n".join(chosen))
        return 0
    if options.traces:
        os.makedirs(options.traces, exist_ok=True)
    answers, began = {}, time.monotonic()
    for name, (arguments, variables) in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            answers[name] = run_scenario(arguments, variables, options, folder)
        brief(name, answers[name])
        if options.out:
            # After each: a run that is cut short leaves what it has.
            pathlib.Path(options.out).write_text(json.dumps(answers))
    print(f"{len(answers)} scenarios in {time.monotonic() - began:.0f} s")
    return 1 if any(each["errors"] for each in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
