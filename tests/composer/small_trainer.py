"""Composer's Trainer on a GPU that does not compute, for the programs of these tests.

The Trainer counts with integers on the GPU: samples, and whether a loader is at its end.
The phantom device adds nothing up, so these few numbers stay on the CPU here, and times
are not summed over the one rank; models, batches, losses, gradients and the optimizer's
state are on the GPU as ever.
"""

import torch
from composer import Trainer
from composer.devices import DeviceGPU
from composer.models import ComposerModel
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 64


class CountsOnCPU(DeviceGPU):
    dist_backend = "cpu:gloo,cuda:nccl"

    def tensor_to_device(self, tensor):
        if tensor.is_floating_point():
            return super().tensor_to_device(tensor)
        return tensor


class OneRank(Trainer):
    def _accumulate_time_across_ranks(self, *figures):
        return figures


class Model(ComposerModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, batch):
        return self.layer(batch[0])

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().mean()


class FailingModel(Model):
    """Ends the training in the batch of number FAILS."""

    def __init__(self, fails):
        super().__init__()
        self.calls = 0
        self.fails = fails

    def forward(self, batch):
        self.calls += 1
        if self.calls > self.fails:
            raise KeyError("the loader's data are wrong")
        return super().forward(batch)


def trainer(callbacks, *, batches=10, model=None, device=None, **arguments):
    """A Trainer of BATCHES batches of 4 samples an epoch, one epoch where nothing else is
    said."""
    model = model or Model()
    samples = torch.zeros(4 * batches, WIDTH)
    return OneRank(
        **{
            "model": model,
            "train_dataloader": DataLoader(TensorDataset(samples, samples), batch_size=4),
            "max_duration": "1ep",
            "optimizers": torch.optim.Adam(model.parameters()),
            "callbacks": callbacks,
            "device": device or CountsOnCPU(),
            "run_name": "r",
            "progress_bar": False,
            **arguments,
        }
    )
