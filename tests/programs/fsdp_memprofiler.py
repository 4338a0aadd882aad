"""MemProfiler and MemorySnapshot in Lightning's Trainer, of a model under FSDP2 on two
GPUs, with the figures worked out by hand.

    python fsdp_memprofiler.py                       # starts its two ranks
    torchrun --nproc-per-node 2 fsdp_memprofiler.py

It trains again with a tracker that fails, and without memlab: on real GPUs, with NCCL,
to the same weights, bit for bit; on the phantom device gloo moves what is no number.
Prints OK for each rank.
"""

import os
import pickle
import socket
import sys
import tempfile
import warnings

# Else cuBLAS may add in another order where streams take turns.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard

from memlab._native import devices
from memlab.callbacks.lightning import (
    MemorySnapshot,
    MemProfiler,
    MemProfilerCfg,
    ProfilerHooksMixin,
)

KIB = 1 << 10
# Floats: two layers of 256 x 1024, and a scale of 1024 in the model itself.
LAYER, SCALE = 1024 * KIB, 4 * KIB
SHARD = (2 * LAYER + SCALE) // 2
# Of 64 rows.
NARROW, WIDE = 64 * KIB, 256 * KIB


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024, bias=False)
        self.down = nn.Linear(1024, 256, bias=False)
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        return self.down(torch.relu(self.up(x)) * self.scale)


class Model(ProfilerHooksMixin, pl.LightningModule):
    def __init__(self, cfg=None):
        super().__init__(memprofiler_cfg=cfg)
        self.automatic_optimization = False
        self.net = None

    def configure_model(self):
        if self.net is None:
            torch.manual_seed(5)
            self.net = Net()
            for module in self.net.up, self.net.down, self.net:
                fully_shard(module, mesh=self.device_mesh["data_parallel"])

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), foreach=False)

    @MemProfiler.memprofilable
    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        self.manual_backward(self.net(batch).sum())
        optimizer.step()
        optimizer.zero_grad()

    @MemProfiler.memprofilable
    def validation_step(self, batch, batch_idx):
        # Two of the root's forward passes in one window of the tracker.
        return self.net(batch).sum() + self.net(batch).sum()


class Saboteur(pl.Callback):
    """Makes the tracker of FSDP's memory fail in the midst of a forward pass."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        def fail(module):
            raise RuntimeError("nobody knows this module")

        pl_module.memprofiler.fsdp_mem_tracker._mod_tracker.get_known_fqn = fail


def train(model, folder, *callbacks):
    torch.manual_seed(7)
    loader = torch.utils.data.DataLoader(torch.randn(512, 256), batch_size=64)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="gpu",
        devices=2,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        callbacks=list(callbacks),
        logger=CSVLogger(folder),
        # Validation before the training comes before the tracker.
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, loader, loader)
    return trainer


def equal(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, and not {expected!r}")


def check_fsdp(profiler, rank):
    device = f"cuda:{rank}"
    stats = profiler.fsdp_memory_stats
    equal("calls", set(stats), {("training_step", 2), ("validation_step", 2)})
    peak = stats["training_step", 2]["peak"][device]
    equal("sharded parameters", peak["Sharded Param"], SHARD)
    equal("optimizer state", peak["OptState"], 2 * SHARD)
    equal("inputs", peak["Inputs"], NARROW)
    # Adam's counts of steps; nothing of what DTensor works out shapes with.
    equal("on the host", stats["training_step", 2]["peak"]["cpu"]["Total"], 3 * 4)
    limit = torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    equal("the peak is at most torch's", 0 < peak["Total"] <= limit, True)
    modules = stats["training_step", 2]["modules"]
    root, up, down = sorted(modules, key=lambda name: (name.count("."), name == "down"))
    equal("root", root, "FSDPNet")
    before, after = (
        modules["FSDPNet.up"][f"{state} # 1"][device]
        for state in ("Before Pre-Forward", "After Pre-Forward")
    )
    # The root's own is gathered first, and stays.
    equal("gathered before up", before["Unsharded Param"], SCALE)
    equal("gathered for up", after["Unsharded Param"], SCALE + LAYER)
    end = modules["FSDPNet.down"]["After Post-Forward # 1"][device]
    # relu's output, what scale makes of it, and the result; up's was replaced.
    equal("activations", end["Activation"], 2 * WIDE + NARROW)
    again = stats["validation_step", 2]["modules"]["FSDPNet"]
    equal("second forward pass", "After Pre-Forward # 2" in again, True)
    equal("what failed", profiler._failed, set())


def check_files(model, rank, snapshot):
    profiler = model.memprofiler
    folder = profiler.memprof_log_dir
    stats = profiler.memory_stats[f"{rank}.training_step.2.end"]
    # What up, relu and down save: not the gathered weights.
    equal("npp", stats["npp_diff"], NARROW + 2 * WIDE)
    other = [key for key in stats if key.startswith("cuda:")]
    equal("other devices", {key.split(".")[0] for key in other}, {f"cuda:{1 - rank}"})
    names = sorted(path.name for path in folder.glob(f"*rank_{rank}[._]*"))
    equal(
        "files",
        names,
        [
            *(
                f"cuda_alloc_rank_{rank}.{name}.2.{context}.pickle"
                for name in ("training_step", "validation_step")
                for context in ("end", "start")
            ),
            *(
                f"fsdp_mem_rank_{rank}_{n}_2.log"
                for n in ("training_step", "validation_step")
            ),
            f"rank_{rank}_fsdp_memory_stats.yaml",
            f"rank_{rank}_memory_stats.yaml",
        ],
    )
    lines = (
        (folder / f"fsdp_mem_rank_{rank}_training_step_2.log").read_text().splitlines()
    )
    equal("header", lines[0], "Iteration 2 training_step Peak FSDP memory stats:")
    peak = [line.split() for line in lines[2:8] if f"cuda:{rank}" in line]
    equal("report", peak[0][:3], [f"cuda:{rank}", str(SHARD / KIB), "KiB"])
    for name in f"rank_{rank}_memory_stats.yaml", f"rank_{rank}_fsdp_memory_stats.yaml":
        try:
            import yaml
        except ModuleNotFoundError:
            break
        equal(name, bool(yaml.safe_load((folder / name).read_text())), True)
    pair = [f"rank{rank}.4.memory_snapshot.{ending}" for ending in ("pickle", "html")]
    equal(
        "recording", [os.path.basename(path) for path in snapshot.files], pair
    )
    with open(snapshot.files[0], "rb") as file:
        equal("events", len(pickle.load(file)["device_traces"][rank]) > 0, True)
    left = [
        n for m in model.modules() for n in vars(m) if n.startswith(("npp_", "rss_"))
    ]
    equal("left on modules", left, [])
    equal("left of the recording", profiler._history, None)


def configuration():
    return MemProfilerCfg(
        enabled=True,
        cuda_allocator_history=True,
        track_fsdp_mem=True,
        fsdp_mem_tracker_root_module="net",
        fsdp_mem_tracker_tabulate=True,
        fsdp_mem_tracker_units="KiB",
        collect_funcs={"default": ["training_step", "validation_step"]},
    )


def main(rank, folder):
    if devices.under_phantom():
        # Bound to a device, as Lightning's would be, gloo could not split it.
        torch.distributed.init_process_group("gloo")
    other = torch.ones(1000, device=f"cuda:{1 - rank}")
    model, callback = Model(configuration()), MemorySnapshot()
    trainer = train(model, folder, callback)
    equal("rank", trainer.global_rank, rank)
    equal("failures", callback.snapshot._window.failures, 0)
    equal("samples of both ranks", callback._count._samples, 512)
    check_fsdp(model.memprofiler, rank)
    check_files(model, rank, callback.snapshot)
    sabotaged, bare = Model(configuration()), Model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(sabotaged, folder, Saboteur())
    said = [str(w.message) for w in caught if "memlab" in str(w.message)]
    equal("what is told", len(said), 1)
    equal("of what", "without FSDP memory: RuntimeError: nobody knows" in said[0], True)
    train(bare, folder)
    if not devices.under_phantom():
        for other_model in sabotaged, bare:
            for one, another in zip(model.parameters(), other_model.parameters()):
                # The root's own stay gathered after a forward pass.
                both = one, another
                parts = [getattr(p, "to_local", lambda p=p: p)() for p in both]
                equal("the same weights", torch.equal(*parts), True)
    del other
    # In one piece: both ranks write to the same stream.
    os.write(1, f"OK rank {rank}\n".encode())
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def start(rank, folder, port):
    # As torchrun tells.
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID="memlab",
    )
    main(rank, folder)


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), sys.argv[1] if len(sys.argv) > 1 else "fsdp_out")
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.create_server(("", 0)) as server,
        ):
            port = server.getsockname()[1]
            server.close()
            # To fork is cheap, and right only where no driver was touched.
            how = "fork" if devices.under_phantom() else "spawn"
            torch.multiprocessing.start_processes(
                start, (folder, port), nprocs=2, start_method=how
            )
