"""accelerate by `accelerate launch`, on two ranks of which one is far ahead.

By hand: a layer of 64 x 64 and 64 in float32 is 16,384 and 512 bytes in blocks of 512; so are its
gradients, and Adam's state is twice that.
"""

import torch
from accelerate import Accelerator

import memlab

accelerator = Accelerator()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
loader = torch.utils.data.DataLoader(torch.ones(80, 64), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

recorder = memlab.MemorySnapshot(skip_batches=2, interval="3ba", folder="traces")
for batch in loader:
    recorder.step()
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
recorder.close()
kinds = recorder.snapshot.peak()["by_category"]
assert accelerator.num_processes == 2
assert kinds["parameter"] == 16896, kinds
# torch 2.15 has its peak at a product's workspace, before the bias has its gradient.
assert kinds["gradient"] in (16896, 16384), kinds
assert kinds["optimizer_state"] == 2 * 16896, kinds["optimizer_state"]
