"""The account of the whole GPU in training a network of GPT-2's size, line by line, beside
what the device itself says; PASS where no more than 0.5 % of it is unknown.

    whole_gpu.py [STEPS]
"""

import json
import sys

import torch

import memlab


class Block(torch.nn.Module):
    """One layer of GPT-2, for where transformers is not installed."""

    def __init__(self, width=768, heads=12):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, batch_first=True, norm_first=True
        )

    def forward(self, x):
        return self.layer(x)


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary=50257, width=768, layers=12):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.Sequential(*[Block(width) for _ in range(layers)])
        self.head = torch.nn.Linear(width, vocabulary, bias=False)

    def loss(self, tokens):
        logits = self.head(self.blocks(self.tokens(tokens)))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def make_model():
    """The model, its loss of tokens, and its name."""
    try:
        import transformers
    except ImportError:
        model = Gpt().cuda()
        return model, model.loss, "a network of GPT-2's size"
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
    return model, lambda t: model(input_ids=t, labels=t).loss, "GPT-2 of transformers"


def train(steps):
    model, loss_of, name = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        tokens = torch.randint(0, 50257, (8, 512), device="cuda")
        loss = loss_of(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    torch.cuda.synchronize()
    # The parameters and the optimizer's state are live as the account is taken.
    return name, model, optimizer


def show(account, device):
    """Prints ACCOUNT beside what the device says, DEVICE; the share that is unknown."""
    lines = account["lines"]
    for key, count in lines.items():
        print(f"  {key:28} {'not told' if count is None else count:>16}")
    added = sum(count for count in lines.values() if count is not None)
    rest = lines["unknown_bytes"] + device - added
    print(f"  {'sum':28} {added:>16}")
    print(f"  {'the device itself':28} {device:>16}")
    print(f"  {'sum less the device':28} {added - device:>16}")
    print(f"  unknown, with that: {100 * rest / device:.4f} % of the device's figure")
    return abs(rest) / device


def main(steps):
    snapshot = memlab.MemorySnapshot().start()
    name, *kept = train(steps)
    free, total = torch.cuda.mem_get_info()
    now = memlab.ledger()
    stats = torch.cuda.memory_stats()
    snapshot.stop()
    peak = snapshot.peak(0)
    print(f"{torch.cuda.get_device_name()}, {name}, {steps} steps")
    print("now")
    shares = [show(now, total - free)]
    print("at the peak")
    at = peak["gpu"]
    if at is None:
        sys.exit(f"FAIL: not sampled: {peak['gpu_reason']}")
    # The device's own figure then: of the sample, moved by what torch took since.
    shares.append(show(at, at["used_bytes"]))
    print(f"  sampled {at['after_us']} us after the peak, moved {at['moved_bytes']}")
    print(f"host {json.dumps(peak['host'])}")
    samples = [n for n in snapshot.data().notes() if n["kind"] == "gpu"]
    print(f"{len(samples)} samples in {steps} steps")
    for note in [*samples[:6], samples[-1]]:
        used, _, own, others, _, reserved, _ = note["values"]
        known = None not in (own, others)
        outside = own - reserved if known else None
        print(f"  used {used} this {own} others {others} outside torch {outside}")
    lines = now["lines"]
    cached = lines["torch_pending_free_bytes"] + lines["torch_cached_bytes"]
    same = lines["torch_allocated_bytes"] == stats["allocated_bytes.all.current"] and (
        cached == stats["reserved_bytes.all.current"] - lines["torch_allocated_bytes"]
    )
    print(f"torch's lines equal memory_stats: {same}")
    passed = same and max(shares) <= 0.005
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
