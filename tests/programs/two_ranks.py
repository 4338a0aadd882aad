"""Two ranks that train together, record themselves, and are merged and checked by rank 0.

    torchrun --nproc-per-node 2 two_ranks.py [FOLDER]
    python two_ranks.py FOLDER              # starts the second rank itself

Rank 1 has twice the batch, so it peaks higher, by activations of the blocks' forward, and
is the rank that keeps one more tensor, of KEPT bytes.  Gradients are summed by NCCL where
there are GPUs, by gloo on the phantom device.  Prints what `memlab merge` says; a failed
check ends the program with status 1.
"""

import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist

STEPS = 6
WIDTH = 256
BATCH = 512
KEPT = 3 << 20


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.relu(self.up(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sum()


def sum_gradients(net, on_gpu):
    """What DistributedDataParallel does, so that steps of the ranks end together."""
    if on_gpu:
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        torch.cuda.synchronize()  # or the host runs ahead of the sums
    else:
        # Gloo would compute on memory that the phantom does not have.
        dist.all_reduce(torch.zeros(1))


def train(rank, folder, on_gpu, memlab):
    torch.cuda.set_device(rank)
    with memlab.MemorySnapshot(file=os.path.join(folder, f"rank{rank}.mlab")) as snapshot:
        net = Net().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        kept = []
        for step in range(STEPS):
            with memlab.phase("training"):
                inputs = torch.ones(BATCH << rank, WIDTH, device="cuda")
                net(inputs).backward()
                sum_gradients(net, on_gpu)
                if rank == 1 and step == 0:
                    kept.append(torch.empty(KEPT, dtype=torch.uint8, device="cuda"))
                optimizer.step()
                optimizer.zero_grad()
            memlab.mark(f"rank {rank}, step {step}")
    snapshot.save(os.path.join(folder, f"rank{rank}.pickle"))


def check(what, holds):
    if not holds:
        raise SystemExit(f"two_ranks.py: {what} does not hold")


def ordered(answer):
    """ANSWER with its lists sorted: rows of one size come in any order."""
    return {
        key: sorted(value, key=json.dumps) if isinstance(value, list) else value
        for key, value in answer.items()
    }


def check_merged(merged, own):
    """MERGED against what is known of the program, and of OWN, each rank's recording."""
    from memlab._compare import merge

    answer = merge.ranks(merged)
    rows = {row["rank"]: row for row in answer["ranks"]}
    check("two ranks of two", sorted(rows) == [0, 1] and answer["missing_ranks"] == [])
    check("a device a rank", [rows[r]["device"] for r in (0, 1)] == [0, 1])
    check("its number", [rows[r]["devices"][0]["number"] for r in (0, 1)] == [0, 1])
    check("one clock", rows[1]["clock"]["method"] == "same_host")
    check("its bound", 0 <= rows[1]["clock"]["bound_ns"] < 50_000_000)
    check("the worst", answer["worst"] == 1)
    why = answer["compared_to"]
    total = rows[1]["peak_allocated_bytes"] - rows[0]["peak_allocated_bytes"]
    check("the difference", why["difference_bytes"] == total > 0)
    for part in ("by_line", "by_module"):
        check(part, sum(p["difference_bytes"] for p in why[part]) == total)
    check("by_category", sum(why["by_category"].values()) == total)
    lines = [(line["difference_bytes"], line["function"]) for line in why["by_line"]]
    # A block of the large pool may have up to 1 MiB that was not split off.
    kept = [n for n, function in lines if function == "train" and 0 <= n - KEPT <= 1 << 20]
    check("the kept tensor", len(kept) == 1)
    forward = [line for line in why["by_line"] if line["category"] == "activation"]
    check("the activations' line", forward and forward[0]["function"] == "forward")
    check("their modules", forward[0]["module"] == "blocks.*")
    for rank in (0, 1):
        # The clock is not moved on one host.
        alone = {**own[rank].peak(rank), "device": rank}
        check("the peak of a rank alone", ordered(merged.peak(rank)) == ordered(alone))
    steps = [n for n in merged.notes() if n["kind"] == "step"]
    ends = [[n["time_ns"] for n in steps if n["rank"] == rank] for rank in (0, 1)]
    check("all steps", [len(e) for e in ends] == [STEPS, STEPS])
    # Each waits for the other in the sum: none ends a step before both began it.
    check("the order of steps", all(
        ends[1][k] > ends[0][k - 1] and ends[0][k] > ends[1][k - 1] for k in range(1, STEPS)
    ))


def main(rank, folder, store):
    # Not above: a process that is forked of one that has it records nothing.
    import memlab
    from memlab._native import devices

    on_gpu = not devices.under_phantom()
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", rank=rank, world_size=2, init_method=store
    )
    train(rank, folder, on_gpu, memlab)
    dist.barrier()
    if rank == 0:
        from memlab._compare import merge
        from memlab._files import load

        for ending in (".mlab", ".pickle"):
            paths = [os.path.join(folder, f"rank{r}{ending}") for r in (1, 0)]
            merged = merge.merge(paths)
            check_merged(merged, [load.read_recording(path) for path in paths[::-1]])
        saved = os.path.join(folder, "merged.pickle")
        merged.write_pickle(saved, True)
        check_merged(
            load.read_recording(saved), [load.read_recording(p) for p in paths[::-1]]
        )
        print(merge.ranks(merge.merge([folder])))
        print("two_ranks.py: all checks hold")
    dist.destroy_process_group()


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    if "RANK" in os.environ:
        os.makedirs(place, exist_ok=True)
        main(int(os.environ["RANK"]), place, "env://")
    else:
        os.makedirs(place, exist_ok=True)
        meeting = "file://" + os.path.abspath(os.path.join(place, ".meeting"))
        second = os.fork()
        if second == 0:
            main(1, place, meeting)
            os._exit(0)
        main(0, place, meeting)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
