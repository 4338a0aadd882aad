"""memlab's callbacks in the Trainers of pytorch_lightning and lightning, on one GPU;
prints one JSON object."""

import csv
import glob
import importlib
import json
import os
import pickle
import socket
import sys
import types
import warnings

found = {}


def without_lightning():
    """What importing the callbacks says where there is no Lightning."""
    names = "lightning", "lightning.pytorch", "pytorch_lightning"
    sys.modules.update(dict.fromkeys(names))
    try:
        importlib.import_module("memlab.callbacks.lightning")
    except ModuleNotFoundError as error:
        return str(error)
    finally:
        for name in names:
            del sys.modules[name]


found["without"] = without_lightning()

import pytorch_lightning  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import memlab  # noqa: E402
import memlab.callbacks.lightning as callbacks  # noqa: E402


def bases():
    """The modules of MemorySnapshot's bases that are Lightning's."""
    modules = [c.__module__ for c in callbacks.MemorySnapshot.__mro__]
    return [m for m in modules if m.endswith(".callbacks.callback")]


found["bases"] = [bases()]

import lightning.pytorch  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

callbacks = importlib.reload(callbacks)
found["bases"].append(bases())


def model_of(package):
    class Model(callbacks.ProfilerHooksMixin, package.LightningModule):
        def __init__(self, cfg=None):
            super().__init__(memprofiler_cfg=cfg)
            self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
            self.fails_at = None

        @callbacks.memprofilable
        def training_step(self, batch, batch_idx):
            if batch_idx == self.fails_at:
                raise ArithmeticError("of the program")
            return self.net(batch["input_ids"]).sum()

        @callbacks.memprofilable
        def validation_step(self, batch, batch_idx):
            self.net(batch["input_ids"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    return Model


class Rows(torch.utils.data.Dataset):
    """Sixty rows of 16: batches of eight, and one of four."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return {"name": str(index), "input_ids": torch.ones(16)}


def trainer_of(package, *added, **options):
    how = {
        "accelerator": "gpu",
        "devices": 1,
        "max_epochs": 2,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "log_every_n_steps": 4,
        "num_sanity_val_steps": 0,
        "callbacks": list(added),
    }
    return package.Trainer(**{**how, **options})


def snapshot(name, **options):
    fields = "{epoch} {batch} {batch_in_epoch} {sample} {sample_in_epoch} {token}"
    return callbacks.MemorySnapshot(
        folder=f"{{run_name}}/{name}",
        filename=f"{name} {fields} {{token_in_epoch}}",
        **options,
    )


def files(folder):
    return sorted(
        os.path.relpath(path, folder)
        for path in glob.glob(f"{folder}/**", recursive=True)
        if os.path.isfile(path)
    )


class Logger(CSVLogger):
    """Takes no figures of memlab's."""

    def log_metrics(self, metrics, step=None):
        if "memory/ooms" in metrics:
            raise OSError("no room")


rows = torch.utils.data.DataLoader(Rows(), batch_size=8)
told = []
warnings.showwarning = lambda message, *rest: told.append(str(message))
warnings.simplefilter("always")

# Everything at once, in lightning.
Model = model_of(lightning.pytorch)
funcs = {"default": ["training_step", "validation_step"]}
cfg = callbacks.MemProfilerCfg(
    enabled=True, cuda_allocator_history=True, collect_funcs=funcs
)
net = Model(cfg)
windows = {
    name: snapshot(name, interval=interval)
    for name, interval in {
        "ba": 3,
        "ep": "1ep",
        "sp": "40sp",
        "tok": "512tok",
        "dur": "0.5dur",
        "all": "99ba",
    }.items()
}
default = callbacks.MemorySnapshot()
trainer = trainer_of(
    lightning.pytorch,
    *windows.values(),
    default,
    callbacks.MemoryMonitor(),
    logger=CSVLogger("logs"),
)
trainer.fit(net, rows, rows)
found["windows"] = {
    name: [
        os.path.relpath(p, "logs/lightning_logs/version_0")
        for p in c.files
    ]
    for name, c in {**windows, "default": default}.items()
}
found["failures"] = [c.snapshot._window.failures for c in windows.values()]
found["peak"] = default.snapshot.peak()["by_category"] != {}
found["keys"] = sorted(net.memprofiler.memory_stats)
found["saved"] = [
    net.memprofiler.memory_stats[f"0.{name}_step.2.end"]["npp_diff"]
    for name in ("training", "validation")
]
# What fit() would tell if it were called again.
found["callbacks"] = len(net.configure_callbacks())
found["recording"] = net.memprofiler._history is not None
found["profiler_files"] = files("logs/lightning_logs/version_0/memprofiler")
with open("logs/lightning_logs/version_0/metrics.csv") as file:
    table = [row for row in csv.DictReader(file) if row["memory/allocated_bytes"]]
found["steps"] = [int(row["step"]) for row in table]
found["allocated"] = [int(row["memory/allocated_bytes"]) > 0 for row in table]
found["told"] = [text for text in told if "memlab" in text]

# A second training begins no other recording, and an exception ends one.
before = files("logs")
trainer_of(lightning.pytorch, default, logger=CSVLogger("logs")).fit(Model(), rows)
found["again"] = [
    name for name in files("logs") if name not in before and "rank0" in name
]
net = Model()
net.fails_at = 2
ended = callbacks.MemorySnapshot(interval="1ep")
try:
    trainer_of(lightning.pytorch, ended, logger=False, default_root_dir="root").fit(
        net, rows
    )
except ArithmeticError as error:
    found["exception"] = str(error)
found["ended"] = files("root")
found["still"] = ended.snapshot.recording

# So does the profiler, where the exception is in none of the functions.
net = Model(callbacks.MemProfilerCfg(enabled=True, cuda_allocator_history=True))


def fail(outputs, batch, batch_idx):
    if batch_idx == 1:
        raise ArithmeticError("after the second batch")


net.on_train_batch_end = fail
try:
    trainer_of(lightning.pytorch, logger=False, default_root_dir="late").fit(net, rows)
except ArithmeticError as error:
    found["late"] = [str(error), files("late"), net.memprofiler._history is not None]

# The folder has files now.
fake = types.SimpleNamespace(
    log_dir=None,
    default_root_dir="root",
    loggers=[],
    ckpt_path=None,
    strategy=types.SimpleNamespace(
        broadcast=lambda value: value, root_device=torch.device("cuda")
    ),
)
try:
    callbacks.MemorySnapshot().setup(fake, net, "fit")
except FileExistsError as error:
    found["exists"] = str(error)
told.clear()
fake.ckpt_path = "last.ckpt"
callbacks.MemorySnapshot().setup(fake, net, "fit")
fake.strategy.root_device = torch.device("cpu")
callbacks.MemorySnapshot().setup(fake, net, "fit")
found["setups"] = list(told)
copy = pickle.loads(pickle.dumps(callbacks.MemorySnapshot(2, interval="5ba")))
found["copy"] = [copy.skip_batches, str(copy.interval)]

# What loggers do not take is told once.
told.clear()
monitor = callbacks.MemoryMonitor()
trainer_of(lightning.pytorch, monitor, logger=Logger("refuse"), max_epochs=1).fit(
    Model(), rows
)
found["refused"] = [text for text in told if "memlab" in text]

# A second training finds the endpoint, too.
monitor = callbacks.MemoryMonitor(prometheus=0)
for _ in range(2):
    monitor.setup(trainer, net, "fit")
    monitor._sinks.write({"memory/ooms": 0}, 1)
    socket.create_connection(monitor.address).close()
    monitor.on_train_end(trainer, net)
found["endpoints"] = [text for text in told if "Prometheus" in text]

fast = callbacks.MemorySnapshot(), callbacks.MemoryMonitor()
trainer_of(lightning.pytorch, *fast, fast_dev_run=3, default_root_dir="fast").fit(
    Model(), rows
)
found["fast"] = files("fast")

# So is why nothing was logged.
told.clear()
for options in {"accelerator": "cpu", "logger": CSVLogger("cpu")}, {"logger": False}:
    silent = callbacks.MemoryMonitor()
    trainer_of(lightning.pytorch, silent, max_epochs=1, **options).fit(Model(), rows)
found["silent"] = [text for text in told if "memlab" in text]

# Callbacks of another trainer say which import is right.
found["wrong"] = []
for wrong in memlab.MemorySnapshot(), memlab.MemoryMonitor():
    try:
        trainer_of(lightning.pytorch, wrong, logger=False).fit(Model(), rows)
    except AttributeError as error:
        found["wrong"].append(str(error))

# So do Lightning's, elsewhere.
for asked in "on_init_end", "run_event":
    try:
        getattr(callbacks.MemorySnapshot(), asked)
    except AttributeError as error:
        found["wrong"].append(str(error))

# Without a logger, a folder of one's own is in default_root_dir.
trainer_of(
    lightning.pytorch, callbacks.MemorySnapshot(folder="own"), logger=False,
    default_root_dir="bare",
).fit(Model(), rows)
found["bare"] = files("bare")

# The Trainer of the other package.
Model = model_of(pytorch_lightning)
net = Model(callbacks.MemProfilerCfg(enabled=True))
other = callbacks.MemorySnapshot(), callbacks.MemoryMonitor()
trainer_of(pytorch_lightning, *other, default_root_dir="other", logger=False).fit(
    net, rows
)
found["other"] = [files("other"), sorted(net.memprofiler.memory_stats)]

# What users are shown.
os.mkdir("shown")
os.chdir("shown")
for source in sys.argv[1:]:
    exec(compile(source, "<shown>", "exec"), {})
found["shown"] = files("logs/lightning_logs/version_0")

print(json.dumps(found))
