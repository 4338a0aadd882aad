"""Programs of torch.compile, for the phantom device to be held against a GPU.

    python compiled.py                   # each kind in a process of its own
    python compiled.py transformer       # one

Prints a line of JSON for each: the peaks of the first step, which compiles and times
kernels, and of the steps after it.
"""

import contextlib
import json
import subprocess
import sys

import torch

STEPS = 4


def transformer(**options):
    import ranks_train

    with torch.device("cuda"):
        model = ranks_train.Model()
    model = torch.compile(model, **options)

    def loss(step):
        words = torch.randint(ranks_train.WORDS, (8, 512), device="cuda")
        logits = model(words)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())

    return model.parameters(), loss


def transformer_dynamic():
    import ranks_train

    with torch.device("cuda"):
        model = ranks_train.Model()
    model = torch.compile(model, dynamic=True)

    def loss(step):
        words = torch.randint(
            ranks_train.WORDS, (4 + step, 256 + 64 * step), device="cuda"
        )
        return model(words).float().square().mean()

    return model.parameters(), loss


def blocks():
    """Compiled block by block, as torchtitan does it."""
    import ranks_train

    with torch.device("cuda"):
        model = ranks_train.Model()
    for number, block in enumerate(model.blocks):
        model.blocks[number] = torch.compile(block, fullgraph=True)

    def loss(step):
        words = torch.randint(ranks_train.WORDS, (8, 512), device="cuda")
        return model(words).square().mean()

    return model.parameters(), loss


def gpt2():
    import transformers

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6))
    compiled = torch.compile(model)

    def loss(step):
        words = torch.randint(50257, (4, 512), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            return compiled(input_ids=words, labels=words).loss

    return model.parameters(), loss


def convolutions():
    width = 64
    with torch.device("cuda"):
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, width, 3, padding=1),
            torch.nn.BatchNorm2d(width),
            torch.nn.ReLU(),
            torch.nn.Conv2d(width, width, 3, padding=1, stride=2),
            torch.nn.BatchNorm2d(width),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(width, 10),
        )
    model = torch.compile(model)

    def loss(step):
        return model(torch.randn(64, 3, 64, 64, device="cuda")).square().mean()

    return model.parameters(), loss


KINDS = {
    "transformer": transformer,
    "transformer_cudagraphs": lambda: transformer(mode="reduce-overhead"),
    "transformer_autocast": transformer,
    "transformer_dynamic": transformer_dynamic,
    "transformer_aot_eager": lambda: transformer(backend="aot_eager"),
    "transformer_optimizer": transformer,
    "blocks": blocks,
    "gpt2": gpt2,
    "convolutions": convolutions,
}


def peaks():
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "requested": stats["requested_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
    }


def train(kind):
    torch.manual_seed(0)
    parameters, loss = KINDS[kind]()
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    update = optimizer.step
    if kind == "transformer_optimizer":
        update = torch.compile(update)
    autocast = contextlib.nullcontext()
    if kind == "transformer_autocast":
        autocast = torch.autocast("cuda", torch.bfloat16)
    rows = []
    for step in range(STEPS):
        torch.compiler.cudagraph_mark_step_begin()
        with autocast:
            value = loss(step)
        value.backward()
        update()
        optimizer.zero_grad()
        del value
        rows.append(peaks())
    return {"kind": kind, "steps": rows}


def main(kinds):
    if len(kinds) == 1:
        print(json.dumps(train(kinds[0])), flush=True)
        return 0
    failed = 0
    for kind in kinds or KINDS:
        failed += subprocess.run([sys.executable, __file__, kind]).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
