"""Ray Train: a worker on each of two GPUs, which records its loop."""

import os

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

SIZE = 512


def train(settings):
    import ray.train.torch
    import torch

    import memlab

    model = ray.train.torch.prepare_model(torch.nn.Linear(SIZE, SIZE, bias=False))
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = memlab.MemorySnapshot(
        skip_batches=2, interval="3ba", folder=settings["folder"]
    )
    batch = torch.ones(8, SIZE, device=ray.train.torch.get_device())
    for _ in range(6):
        recorder.step()
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    recorder.close()
    kinds = recorder.snapshot.peak()["by_category"]
    assert kinds["optimizer_state"] == 2 * 4 * SIZE * SIZE, kinds["optimizer_state"]


ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, object_store_memory=100 << 20)
folder = os.path.abspath("traces")
TorchTrainer(
    train,
    train_loop_config={"folder": folder},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=True),
    run_config=RunConfig(name="run", storage_path=os.path.abspath("results")),
).fit()
print(sorted(os.listdir(folder)))
