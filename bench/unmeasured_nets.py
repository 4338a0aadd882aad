"""Networks of torchvision of which no layer was measured for its sake: the ranges that
`memlab fit` gives for their peaks, beside an H200's.

    python bench/unmeasured_nets.py > FILE          # a line of JSON for each
    python bench/unmeasured_nets.py NAME            # trains one; memlab fit runs it

Needs torch 2.11 and torchvision.  What the H200 took is in
bench/results/unmeasured_nets_h200_*.jsonl.
"""

import json
import sys
from pathlib import Path

import torch
import torchvision
from fit_training import normal, sgd, train, whole
from torch.nn import functional as F

import memlab

MEASURED = Path(__file__).parent / "results/unmeasured_nets_h200_torch2.11.0_2026-11-27.jsonl"


def train_net(name, batch, bfloat16, channels_last):
    side = 299 if name == "inception_v3" else 224
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with_heads = name in ("googlenet", "inception_v3")
    options = {"aux_logits": True, "init_weights": False} if with_heads else {}
    model = getattr(torchvision.models, name)(weights=None, **options).cuda()

    def loss_of(model):
        made = model(normal(batch, 3, side, side).contiguous(memory_format=layout))
        return F.cross_entropy((made[0] if with_heads else made).float(), whole(1000, batch))

    model = model.to(memory_format=layout)
    train(model, loss_of, sgd(model), amp=torch.bfloat16 if bfloat16 else None)


def main():
    rows = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    rows = {row["name"]: row for row in rows if not row["conf"]}
    for name, row in rows.items():
        if sys.argv[1:] == [name]:
            train_net(name, row["batch"], row["bfloat16"], row["channels_last"])
        elif not sys.argv[1:]:
            answer = memlab.fit(__file__, [name], gpu="h200", timeout=600)
            [device] = answer["devices"]
            kinds = "allocated", "reserved"
            said = {kind: device[f"{kind}_peak_range_bytes"] for kind in kinds}
            print(json.dumps({"name": name, "h200": row["h200"], **said}), flush=True)


if __name__ == "__main__":
    main()
