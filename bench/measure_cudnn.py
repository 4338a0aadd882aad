"""What convolutions take beside their results, on the GPU at hand.

    python bench/measure_cudnn.py [--seconds 170] [--seed 1]
                                  [--varied | --batches] [--out $OUT/cudnn.jsonl]

Runs the convolutions of well-known networks and others drawn from a seed: forward, the
gradient of the input and that of the filter, each alone, in float32, float16 and
bfloat16, contiguous and channels last.  Each line of the output is one call: its shapes
(elements), what torch's allocator was asked for during it in order (bytes, a free is
negative), the results' bytes, and the kernels that ran where the profiler sees them.
The first line says on what it was measured.  Shapes that the time does not suffice for
are left out; the last line says how many.  --varied takes the layers of those networks,
and pairs of channels as networks have them, at batches and sizes drawn from the seed; --batches
the layers at the usual batches.
"""

import argparse
import itertools
import json
import math
import os
import random
import time
from pathlib import Path

import torch

# name: batch, spatial size, and convolutions as
# (in, out, filter, stride, padding, groups, divisor of the spatial size).
NETWORKS = {
    "resnet50": (32, (224, 224), [
        (3, 64, 7, 2, 3, 1, 1), (64, 64, 1, 1, 0, 1, 4), (64, 64, 3, 1, 1, 1, 4),
        (64, 256, 1, 1, 0, 1, 4), (256, 64, 1, 1, 0, 1, 4), (256, 128, 1, 1, 0, 1, 4),
        (128, 128, 3, 2, 1, 1, 4), (128, 128, 3, 1, 1, 1, 8), (128, 512, 1, 1, 0, 1, 8),
        (256, 512, 1, 2, 0, 1, 4), (512, 128, 1, 1, 0, 1, 8), (512, 256, 1, 1, 0, 1, 8),
        (256, 256, 3, 2, 1, 1, 8), (256, 256, 3, 1, 1, 1, 16),
        (256, 1024, 1, 1, 0, 1, 16), (512, 1024, 1, 2, 0, 1, 8),
        (1024, 256, 1, 1, 0, 1, 16), (1024, 512, 1, 1, 0, 1, 16),
        (512, 512, 3, 2, 1, 1, 16), (512, 512, 3, 1, 1, 1, 32),
        (512, 2048, 1, 1, 0, 1, 32), (1024, 2048, 1, 2, 0, 1, 16),
        (2048, 512, 1, 1, 0, 1, 32), (64, 64, 1, 2, 0, 1, 4), (64, 128, 3, 2, 1, 1, 4),
        (64, 128, 1, 2, 0, 1, 4), (128, 256, 3, 2, 1, 1, 8), (128, 256, 1, 2, 0, 1, 8),
        (256, 512, 3, 2, 1, 1, 16), (256, 512, 1, 2, 0, 1, 16),
    ]),
    "regnet_y": (32, (224, 224), [
        (3, 32, 3, 2, 1, 1, 1), (32, 128, 1, 1, 0, 1, 2), (32, 128, 1, 2, 0, 1, 2),
        (128, 128, 3, 2, 1, 2, 2), (128, 128, 3, 1, 1, 2, 4), (128, 128, 1, 1, 0, 1, 4),
        (128, 192, 1, 1, 0, 1, 4), (128, 192, 1, 2, 0, 1, 4), (192, 192, 3, 2, 1, 3, 4),
        (192, 192, 3, 1, 1, 3, 8), (192, 192, 1, 1, 0, 1, 8), (192, 512, 1, 1, 0, 1, 8),
        (192, 512, 1, 2, 0, 1, 8), (512, 512, 3, 2, 1, 8, 8), (512, 512, 3, 1, 1, 8, 16),
        (512, 512, 1, 1, 0, 1, 16), (512, 1088, 1, 1, 0, 1, 16),
        (512, 1088, 1, 2, 0, 1, 16), (1088, 1088, 3, 2, 1, 17, 16),
        (1088, 1088, 3, 1, 1, 17, 32), (1088, 1088, 1, 1, 0, 1, 32),
    ]),
    "convnext_tiny": (16, (224, 224), [
        (3, 96, 4, 4, 0, 1, 1), (96, 96, 7, 1, 3, 96, 4), (96, 192, 2, 2, 0, 1, 4),
        (192, 192, 7, 1, 3, 192, 8), (192, 384, 2, 2, 0, 1, 8),
        (384, 384, 7, 1, 3, 384, 16), (384, 768, 2, 2, 0, 1, 16),
        (768, 768, 7, 1, 3, 768, 32),
    ]),
    "efficientnet_b0": (32, (224, 224), [
        (3, 32, 3, 2, 1, 1, 1), (32, 32, 3, 1, 1, 32, 2), (32, 8, 1, 1, 0, 1, 224),
        (8, 32, 1, 1, 0, 1, 224), (32, 16, 1, 1, 0, 1, 2), (16, 96, 1, 1, 0, 1, 2),
        (96, 96, 3, 2, 1, 96, 2), (96, 4, 1, 1, 0, 1, 224), (96, 24, 1, 1, 0, 1, 4),
        (24, 144, 1, 1, 0, 1, 4), (144, 144, 3, 1, 1, 144, 4), (144, 6, 1, 1, 0, 1, 224),
        (144, 24, 1, 1, 0, 1, 4), (144, 144, 5, 2, 2, 144, 4), (144, 40, 1, 1, 0, 1, 8),
        (40, 240, 1, 1, 0, 1, 8), (240, 240, 5, 1, 2, 240, 8), (240, 40, 1, 1, 0, 1, 8),
        (240, 240, 3, 2, 1, 240, 8), (240, 80, 1, 1, 0, 1, 16), (80, 480, 1, 1, 0, 1, 16),
        (480, 480, 3, 1, 1, 480, 16), (480, 80, 1, 1, 0, 1, 16),
        (480, 112, 1, 1, 0, 1, 16), (112, 672, 1, 1, 0, 1, 16),
        (672, 672, 5, 2, 2, 672, 16), (672, 192, 1, 1, 0, 1, 32),
        (192, 1152, 1, 1, 0, 1, 32), (1152, 1152, 5, 1, 2, 1152, 32),
        (1152, 48, 1, 1, 0, 1, 224), (1152, 320, 1, 1, 0, 1, 32),
        (320, 1280, 1, 1, 0, 1, 32),
    ]),
    "unet": (8, (64, 64), [
        (3, 128, 3, 1, 1, 1, 1), (128, 128, 3, 1, 1, 1, 1), (128, 256, 3, 1, 1, 1, 2),
        (256, 512, 3, 1, 1, 1, 4), (512, 512, 3, 1, 1, 1, 8), (1024, 256, 3, 1, 1, 1, 4),
        (512, 128, 3, 1, 1, 1, 2), (256, 128, 3, 1, 1, 1, 1), (128, 3, 1, 1, 0, 1, 1),
        (320, 320, 3, 1, 1, 1, 1), (4, 320, 3, 1, 1, 1, 1), (320, 4, 3, 1, 1, 1, 1),
        (320, 640, 3, 1, 1, 1, 2), (640, 1280, 3, 1, 1, 1, 4), (320, 320, 3, 2, 1, 1, 1),
    ]),
    "vgg16": (16, (224, 224), [
        (3, 64, 3, 1, 1, 1, 1), (64, 64, 3, 1, 1, 1, 1), (64, 128, 3, 1, 1, 1, 2),
        (128, 256, 3, 1, 1, 1, 4), (256, 512, 3, 1, 1, 1, 8), (512, 512, 3, 1, 1, 1, 16),
    ]),
    "mobilenet_v2": (32, (224, 224), [
        (16, 96, 1, 1, 0, 1, 2), (96, 96, 3, 2, 1, 96, 2), (32, 192, 1, 1, 0, 1, 8),
        (192, 192, 3, 1, 1, 192, 8), (384, 64, 1, 1, 0, 1, 16), (576, 160, 1, 1, 0, 1, 32),
    ]),
    "resnext": (32, (224, 224), [
        (128, 128, 3, 1, 1, 32, 4), (256, 256, 3, 2, 1, 32, 4), (512, 512, 3, 1, 1, 32, 16),
    ]),
    "vit": (32, (224, 224), [(3, 768, 16, 16, 0, 1, 1), (3, 1024, 14, 14, 0, 1, 1)]),
    "alexnet": (64, (224, 224), [
        (3, 64, 11, 4, 2, 1, 1), (64, 192, 5, 1, 2, 1, 8), (192, 384, 3, 1, 1, 1, 16),
    ]),
    "whisper": (4, (3000,), [(80, 256, 3, 1, 1, 1, 1), (256, 256, 3, 2, 1, 1, 1)]),
    "wav2vec2": (4, (16000,), [
        (1, 512, 10, 5, 0, 1, 1), (512, 512, 3, 2, 0, 1, 5), (512, 512, 2, 2, 0, 1, 40),
        (768, 768, 128, 1, 64, 16, 320),
    ]),
    "conv3d": (4, (64, 64, 64), [
        (1, 32, 3, 1, 1, 1, 1), (32, 64, 3, 1, 1, 1, 2), (64, 64, 3, 1, 1, 1, 4),
        (4, 16, 1, 1, 0, 1, 2), (16, 32, 2, 2, 0, 1, 2),
    ]),
}  # fmt: skip

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def known_shapes():
    for name, (batch, size, convolutions) in NETWORKS.items():
        for inputs, outputs, width, stride, padding, groups, divisor in convolutions:
            yield {
                "name": name,
                "x": [batch, inputs, *(max(1, s // divisor) for s in size)],
                "w": [outputs, inputs // groups, *[width] * len(size)],
                "stride": stride,
                "padding": padding,
                "groups": groups,
                "dilation": 1,
            }


def batched_shapes():
    """The networks' layers at the batches that training takes, the usual ones first."""
    shapes = list(known_shapes())
    for batch in (64, 32, 16, 8, 128, 4, 256):
        for shape in shapes:
            x = [batch, *shape["x"][1:]]
            if 4 * batch * math.prod(x[1:]) <= 1 << 30:
                yield {**shape, "name": "batched", "x": x}


def drawn_shapes(seed):
    """Shapes without an end, of at most 256 MiB in float32."""
    draw = random.Random(seed)
    while True:
        dims = draw.choice([1, 2, 2, 2, 2, 2, 3])
        batch = draw.choice([1, 2, 3, 4, 8, 16, 32, 64])
        channels = [1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256]
        inputs, outputs = draw.choice(channels), draw.choice([*channels, 512, 1024])
        groups = draw.choice([1] * 8 + [2, 4, inputs])
        if inputs % groups or outputs % groups:
            groups = 1
        width = draw.choice([1, 1, 2, 3, 3, 3, 3, 4, 5, 7])
        stride = draw.choice([1, 1, 1, 2, 2, 3, width])
        dilation = draw.choice([1] * 9 + [2])
        sizes = {
            1: [64, 100, 257, 1000, 3000, 16000],
            2: [7, 8, 13, 14, 16, 28, 32, 33, 56, 64, 100, 112, 128, 224],
            3: [8, 12, 16, 17, 32, 64],
        }
        size = [draw.choice(sizes[dims])] * dims
        padding = draw.choice([0, width // 2, width // 2])
        reach = dilation * (width - 1)
        made = (size[0] + 2 * padding - reach - 1) // stride + 1
        if size[0] + 2 * padding <= reach:
            continue
        most = max(inputs * size[0] ** dims, outputs * made**dims) * batch
        if most * 4 <= 256 << 20:
            yield {
                "name": "drawn",
                "x": [batch, inputs, *size],
                "w": [outputs, inputs // groups, *[width] * dims],
                "stride": stride,
                "padding": padding,
                "groups": groups,
                "dilation": dilation,
            }


def varied_shapes(seed):
    """Layers as networks have them, at drawn batches and sizes, without an end; of at
    most 512 MiB in float32, none twice."""
    draw = random.Random(seed)
    known = list(known_shapes())
    widths = [16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024]
    seen = set()
    while True:
        shape = dict(draw.choice(known))
        if draw.random() < 0.6:
            inputs = draw.choice([1, 3, 3, 4, *widths, *widths])
            outputs = draw.choice([inputs, 2 * inputs, max(1, inputs // 2), *widths])
            outputs = draw.choice([outputs] * 7 + [1, 3])
            filters = [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 1, 1), (3, 2, 1), (4, 2, 1)]
            filters += [(2, 2, 0), (5, 1, 2), (7, 2, 3), (7, 1, 3)]
            width, stride, padding = draw.choice(filters)
            dims = draw.choice([1, 2, 2, 2, 2, 2, 2, 2, 3])
            shape.update(stride=stride, padding=padding, groups=1)
            shape["w"] = [outputs, inputs, *[width] * dims]
            shape["x"] = [1, inputs, *[0] * dims]
        dims = len(shape["x"]) - 2
        sizes = {
            1: [50, 128, 400, 512, 1000, 1500, 3000, 4000, 8000, 16000],
            2: [4, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 112, 128, 192, 224, 256],
            3: [8, 16, 24, 32, 48, 64, 96],
        }
        side = draw.choice(sizes[dims])
        batch = draw.choice([1, 2, 4, 8, 16, 16, 32, 32, 64, 64, 128, 256])
        shape["x"] = [batch, shape["x"][1], *[side] * dims]
        shape["name"] = "varied"
        reach = shape["w"][2]
        made = (side + 2 * shape["padding"] - reach) // shape["stride"] + 1
        most = max(shape["x"][1] * side**dims, shape["w"][0] * max(made, 0) ** dims) * batch
        if made >= 1 and most * 4 <= 512 << 20 and str(shape) not in seen:
            seen.add(str(shape))
            yield shape


def asked_for():
    """What torch's history says since it was last cleared: +bytes and -bytes."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(
        "all", context=None, max_entries=1000, clear_history=True
    )
    signs = {"alloc": 1, "free_requested": -1}
    return [signs[e["action"]] * e["size"] for e in trace if e["action"] in signs]


def call(direction, x, w, y, arguments):
    if direction == "forward":
        return (torch.ops.aten.convolution(x, w, None, *arguments),)
    mask = [direction == "input_gradient", direction == "filter_gradient", False]
    return torch.ops.aten.convolution_backward(y, x, w, None, *arguments, mask)


def kernels_of(profile, calls):
    """For each of CALLS calls, which a spin kernel ends, the names of its kernels; None
    where the profiler did not see them."""
    events = [e for e in profile.events() if e.device_type.name == "CUDA"]
    groups, group = [], []
    for event in sorted(events, key=lambda e: e.time_range.start):
        if "spin" in event.name:
            groups.append(group)
            group = []
        else:
            group.append(event.name[:160])
    return groups if len(groups) == calls else [None] * calls


def measure(shape, tf32, benchmark):
    """One dictionary a call."""
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = benchmark
    dims = len(shape["x"]) - 2
    arguments = (
        [shape["stride"]] * dims, [shape["padding"]] * dims, [shape["dilation"]] * dims,
        False, [0] * dims, shape["groups"],
    )  # fmt: skip
    last = {2: torch.channels_last, 3: torch.channels_last_3d}
    layouts = ["contiguous", "channels_last"] if dims in last else ["contiguous"]
    types = list(DTYPES) if tf32 and not benchmark else ["float32"]
    rows = []
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        for dtype, layout in itertools.product(types, layouts):
            form = last[dims] if layout == "channels_last" else torch.contiguous_format

            def tensor(size, dtype=dtype, form=form):
                made = torch.empty(size, dtype=DTYPES[dtype], device="cuda")
                return made.contiguous(memory_format=form)

            x, w = tensor(shape["x"]), tensor(shape["w"])
            y = torch.ops.aten.convolution(x, w, None, *arguments)
            torch.cuda._sleep(1)
            rows.append(None)
            for direction in ("forward", "input_gradient", "filter_gradient"):
                asked_for()
                # The first call of a benchmarked shape tries algorithms.
                for number in range(2 if benchmark else 1):
                    error, results = None, ()
                    try:
                        results = call(direction, x, w, y, arguments)
                    except RuntimeError as raised:
                        error = str(raised)[:120]
                    asked = asked_for()
                    torch.cuda._sleep(1)
                    kept = [r for r in results if r is not None]
                    rows.append({
                        **shape, "y": list(y.shape), "dtype": dtype, "layout": layout,
                        "direction": direction, "tf32": tf32, "benchmark": benchmark,
                        "call": number, "asked_bytes": asked,
                        "result_bytes": [r.numel() * r.element_size() for r in kept],
                        "result_strides": [list(r.stride()) for r in kept],
                        "error": error,
                    })  # fmt: skip
                    del results, kept
                    asked_for()
        torch.cuda.synchronize()
    for row, kernels in zip(rows, kernels_of(profile, len(rows)), strict=True):
        if row is not None:
            row["kernels"] = kernels
    return [row for row in rows if row is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=170, help="stop after these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--varied", action="store_true", help="see above")
    parser.add_argument("--batches", action="store_true", help="see above")
    out = Path(os.environ.get("OUT", "build"), "cudnn.jsonl")
    parser.add_argument("--out", type=Path, default=out)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = [(shape, True, False) for shape in known_shapes()]
    # The same without TF32 and with cudnn.benchmark, for a part of them.
    some = [shape for shape, *_ in known[::4]]
    known += [(shape, False, False) for shape in some]
    known += [(shape, True, True) for shape in some]
    if options.batches:
        known, shapes_of = [(shape, True, False) for shape in batched_shapes()], None
    elif options.varied:
        known, shapes_of = [], varied_shapes(options.seed)
    else:
        shapes_of = drawn_shapes(options.seed)
    drawn = ((shape, True, False) for shape in shapes_of or ())
    head = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "seed": options.seed,
    }
    end, shapes, calls = time.monotonic() + options.seconds, 0, 0
    with open(options.out, "w") as file:
        file.write(json.dumps(head) + "\n")
        for case in itertools.chain(known, drawn):
            if time.monotonic() > end or shapes >= 2000:
                break
            for row in measure(*case):
                file.write(json.dumps(row) + "\n")
                calls += 1
            file.flush()
            torch.cuda.empty_cache()
            shapes += 1
        left = max(0, len(known) - shapes)
        file.write(json.dumps({"shapes": shapes, "left_out": left}) + "\n")
    print(f"{options.out}: {calls} calls of {shapes} shapes, {left} known ones left out")


if __name__ == "__main__":
    main()
