"""DeepSpeed with ZeRO, on one rank or by torchrun: deepspeed_zero.py STAGE.

By hand, for N elements, trained in bfloat16: 2 N bytes of parameters, 4 N of their copy in
float32, which the optimizer steps, and 2 x 4 N of Adam's state, whatever buffers hold them.
Of several ranks each has its share of the copy and of the state; with ZeRO 3 of all.
"""

import os
import sys

import deepspeed
import torch

import memlab

SIZE, LAYERS = 512, 4
ELEMENTS = LAYERS * SIZE * SIZE

stage = int(sys.argv[1])
if "RANK" not in os.environ:
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
ranks = int(os.environ["WORLD_SIZE"])
layers = [torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(LAYERS)]
model = torch.nn.Sequential(*layers)
whole = memlab.MemorySnapshot()
whole.start()
engine, _, _, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 300000},
    },
)
recorder = memlab.MemorySnapshot(skip_batches=1, interval="2ba", folder=f"zero{stage}")
batch = torch.ones(8, SIZE, device=engine.device, dtype=torch.bfloat16)
for _ in range(4):
    recorder.step()
    engine.backward(engine(batch).square().mean())
    engine.step()
recorder.close()
whole.stop()
kinds = whole.peak()["by_category"]
print(
    f"ZeRO {stage}: {ELEMENTS} elements",
    {kind: size for kind, size in kinds.items() if size},
)
print(recorder.files)
own = ELEMENTS // ranks
weights = 2 * (own if stage == 3 else ELEMENTS)
assert kinds["parameter"] == weights + 4 * own, kinds["parameter"]
assert kinds["optimizer_state"] == 2 * 4 * own, kinds["optimizer_state"]
