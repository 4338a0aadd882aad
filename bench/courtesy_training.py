"""Whether a training run is the same, bit for bit, where memlab.Courtesy gives the GPU's
memory back in between: a small GPT with AdamW, trained twice, the second time with a yield
after every step and one between forward and backward.  Prints one line of JSON.

    bench/courtesy_training.py                  # 20 steps
    bench/courtesy_training.py --steps 2        # a rehearsal, as on the phantom
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
SHAPE = {"length": 256, "heads": 6, "dim": 384}


class Yields:
    """Gives memory back and takes it again, and remembers what that was like."""

    def __init__(self, model):
        self.weights = [model.bytes.weight, model.head.weight]
        self.row = model.blocks[0].mlp.up.weight.detach()[3]  # a view
        self.whole = model.blocks[0].mlp.up.weight
        self.count = 0
        self.aliased = True
        self.most_allocated = 0
        self.bytes = 0
        self.left_before_backward = {}

    def is_aliased(self):
        first, second = (weight.data_ptr() for weight in self.weights)
        gap = self.row.data_ptr() - self.whole.data_ptr()
        return first == second and gap == 3 * self.whole.shape[1] * 4

    def __call__(self, between_steps=True):
        import torch

        import memlab

        with memlab.Courtesy() as courtesy:
            self.aliased = self.aliased and self.is_aliased()
            if between_steps:
                allocated = torch.cuda.memory_allocated()
                self.most_allocated = max(self.most_allocated, allocated)
                self.bytes = max(self.bytes, courtesy.yielded_bytes)
            else:
                self.left_before_backward = courtesy.left
        self.count += 1
        self.aliased = self.aliased and self.is_aliased()


def train(steps, layers, yielding):
    """(losses, parameters, the optimizer's state, what the yields were like)"""
    import torch
    import train_gpt

    torch.manual_seed(0)
    text = train_gpt.TEXT.read_bytes()
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    model = train_gpt.GPT(layers=layers, **SHAPE).cuda()
    model.head.weight = model.bytes.weight  # tied
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    yields = Yields(model)
    losses = []
    for step in range(steps):
        tokens, targets = train_gpt.sample_batch(data, 16, SHAPE["length"], "cuda")
        loss = model(tokens, targets)
        if yielding and step == steps // 2:
            yields(between_steps=False)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().cpu())
        del loss
        if yielding:
            yields()
    parameters = [p.detach().cpu() for p in model.parameters()]
    states = optimizer.state_dict()["state"].values()
    state = [value.cpu() for entries in states for value in entries.values()]
    return losses, parameters, state, yields


def same(ones, others):
    import torch

    return len(ones) == len(others) and all(map(torch.equal, ones, others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()
    steps, layers = options.steps, options.layers
    from memlab import phantom
    from memlab._native import devices

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if not devices.gpu_present():
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {**os.environ, **phantom.environment(backed=True)})
    import torch

    torch.use_deterministic_algorithms(True)
    *plain, _ = train(steps, layers, yielding=False)
    *again, _ = train(steps, layers, yielding=False)
    *courteous, yields = train(steps, layers, yielding=True)
    print(json.dumps({
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "steps": steps,
        "yields": yields.count,
        "deterministic": all(map(same, plain, again)),
        "losses_equal": same(plain[0], courteous[0]),
        "parameters_equal": same(plain[1], courteous[1]),
        "optimizer_state_equal": same(plain[2], courteous[2]),
        "aliasing_kept": yields.aliased,
        "yielded_bytes": yields.bytes,
        "allocated_while_yielded_bytes": yields.most_allocated,
        "left_before_backward": yields.left_before_backward,
        "losses": [float(loss) for loss in courteous[0]],
    }))


if __name__ == "__main__":
    main()
