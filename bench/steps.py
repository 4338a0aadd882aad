"""What recording adds to a training step."""

import os
import sys
import time

import recorders
from paired import interleave, over, spread

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEPS = 8  # of one repeat


class Missing(Exception):
    """A package that a model needs is not installed."""


def hf_gpt2(batch, length):
    """GPT-2 of transformers, as people fine-tune it: (model, loss of a step)."""
    try:
        import transformers
    except ImportError as error:
        raise Missing(f"transformers cannot be imported: {error}") from None
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to("cuda").train()
    tokens = torch.randint(0, 50257, (batch, length), device="cuda")
    return model, lambda: model(input_ids=tokens, labels=tokens).loss


def example(batch, length):
    """examples/train_gpt.py in the size of GPT-2: (model, loss of a step)."""
    import torch

    sys.path.insert(0, os.path.join(ROOT, "examples"))
    import train_gpt

    model = train_gpt.GPT(length, 12, 12, 768).to("cuda")
    tokens = torch.randint(0, 256, (batch, length + 1), device="cuda")
    return model, lambda: model(tokens[:, :-1], tokens[:, 1:])


MODELS = {"hf-gpt2": hf_gpt2, "example": example}
PRECISIONS = ("float32", "bfloat16")


def training(model, loss_of, precision):
    """A function that trains MODEL for a step and gives the loss."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    mixed = precision == "bfloat16"

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def parse(text):
    """(model, batch, length, precision) of MODEL:BATCHxLENGTH:PRECISION."""
    model, size, precision = text.split(":")
    batch, length = map(int, size.split("x"))
    if model not in MODELS or precision not in PRECISIONS or min(batch, length) < 1:
        raise ValueError(text)
    return model, batch, length, precision


def bench_step(options, text):
    """Figures of a step of the model and size that TEXT names."""
    import torch

    name, batch, length, precision = parse(text)
    result = {"model": name, "batch": batch, "length": length, "precision": precision}
    try:
        step = training(*MODELS[name](batch, length), precision)
    except Missing as missing:
        return {**result, "skipped": str(missing)}
    count = 3 if options.quick else STEPS

    def timed():
        step().item()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            step().item()  # as people log it
        return (time.perf_counter() - begin) / count

    def measure(name):
        with recorders.recorder(name):
            return timed()

    for _ in range(3):
        timed()
    # Attaching the tracker is for the life of the process, so this comes first.
    never = [timed() for _ in range(options.repeats)]
    result.update(host_and_gpu(step))
    result["events"] = events_of(step)
    names = recorders.names("memlab uses", "torch python", "torch all")
    values = interleave(names, options.repeats, measure)
    result["rows"] = rows(never, values, result["events"])
    return result


def host_and_gpu(step):
    """Whether the host or the GPU bounds the step: how long the host takes to launch
    it, and how much longer the GPU takes to be done, in ms."""
    import torch

    launched, waited = [], []
    for _ in range(10):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
        torch.cuda.synchronize()
        launched.append((end - begin) * 1e3)
        waited.append((time.perf_counter() - end) * 1e3)
    return {"launch_ms": spread(launched), "then_gpu_ms": spread(waited)}


def events_of(step):
    """Events of one step in the steady state."""
    import torch

    import memlab

    with recorders.recorder("memlab"):
        step()
        torch.cuda.synchronize()
        before = memlab.stats(0)["events"]
        step()
        torch.cuda.synchronize()
        return memlab.stats(0)["events"] - before


def rows(never, values, events):
    base = values[recorders.OFF]
    table = {"never attached": {"ms": spread([v * 1e3 for v in never])}}
    for name, times in values.items():
        share = [value / other for value, other in zip(times, base, strict=True)]
        added = over([v * 1e9 for v in times], [v * 1e9 for v in base])
        table[name] = {
            "ms": spread([v * 1e3 for v in times]),
            "share_over_off": over(share, [1.0] * len(share)),
            "ns_an_event_over_off": added["median"] / events,
        }
    return table
