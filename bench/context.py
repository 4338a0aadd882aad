"""memlab.Courtesy(context=True) at work: a training run that gives its GPU back, context
and all, once between two steps and once between forward and backward, against one that
does not.

    python bench/context.py [--steps 12 --layers 12 --width 1024 --batch 8 --length 512]

Prints one line of JSON: the losses of both and whether they are equal to the bit, and for
each time the memory was given back what NVML said before, during and after (bytes, of
this process and of the device) and seconds: of the whole yield and restore, and of the
driver's part of each ("give", "take").  Then what the driver refuses.  Ends with 1 where
losses differ or anything was left on the GPU.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import threading
import time


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, default in (
        ("steps", 12),
        ("layers", 12),
        ("width", 1024),
        ("batch", 8),
        ("length", 512),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--child", choices=["plain", "courtesy"], help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- In a process of its own: one training run ----


def make_model(torch, options):
    nn, width = torch.nn, options.width

    class Block(nn.Module):
        """Of a transformer, with no kernel whose order of sums varies."""

        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            shape = (*x.shape[:2], 8, width // 8)
            parts = self.queries(self.before(x)).chunk(3, dim=-1)
            q, k, v = (part.view(shape).transpose(1, 2) for part in parts)
            scores = (q @ k.transpose(-1, -2) / shape[-1] ** 0.5).softmax(-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(x.shape))
            return x + self.mlp(self.between(x))

    blocks = [Block() for _ in range(options.layers)]
    return nn.Sequential(nn.Linear(64, width), *blocks, nn.Linear(width, 64)).cuda()


def give_back(memlab, courtesy):
    """One yield and restore, with what is told of them."""
    began = time.perf_counter()
    courtesy.yield_memory()
    given = time.perf_counter()
    yielded, left = courtesy.yielded_bytes, courtesy.left
    taking = time.perf_counter()
    courtesy.restore()
    seconds = {"yield": given - began, "restore": time.perf_counter() - taking}
    told = courtesy.context
    return {
        "yielded_bytes": yielded,
        "left_bytes": left,
        "seconds": {**seconds, **told["seconds"]},
        "memory": told["memory"],
        "memory_reason": told["memory_reason"],
    }


def meanwhile(torch, memlab):
    """Whether a thread that uses CUDA while the context is away waits for it."""
    courtesy = memlab.Courtesy(context=True)
    finished = threading.Event()

    def use():
        torch.zeros(1 << 20, device="cuda").add_(1)
        torch.cuda.synchronize()
        finished.set()

    courtesy.yield_memory()
    thread = threading.Thread(target=use)
    thread.start()
    waited = not finished.wait(2)
    courtesy.restore()
    thread.join()
    return waited


def try_to_give(memlab):
    """What memlab says where the driver refuses."""
    courtesy = memlab.Courtesy(context=True)
    try:
        courtesy.yield_memory()
        return "given all the same"
    except memlab.Error as error:
        return str(error)
    finally:
        courtesy.restore()


def refusals(memlab):
    """What becomes of managed memory, and of the process after it was refused.  The last of
    all: a driver that failed once may fail from then on."""
    managed = ctypes.c_void_p()
    try:
        cuda = ctypes.CDLL(None)
        answer = cuda.cudaMallocManaged(
            ctypes.byref(managed), ctypes.c_size_t(1 << 20), ctypes.c_uint(1)
        )
    except AttributeError:
        answer = "not found"
    if answer != 0:
        return {"managed": f"not tried: cudaMallocManaged: {answer}"}
    said = {"managed": try_to_give(memlab)}
    cuda.cudaFree(managed)
    said["after_managed_was_freed"] = try_to_give(memlab)
    return said


def train(options):
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    import memlab

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = make_model(torch, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator(device="cuda").manual_seed(2)
    courtesy = memlab.Courtesy(context=True) if options.child == "courtesy" else None
    times, losses = [], []
    for step in range(options.steps):
        x = torch.randn(
            options.batch, options.length, 64, device="cuda", generator=generator
        )
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        if courtesy is not None and step == 2 * options.steps // 3:
            times.append({"when": "before backward", **give_back(memlab, courtesy)})
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if courtesy is not None and step == options.steps // 3:
            times.append({"when": "between steps", **give_back(memlab, courtesy)})
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "losses": losses,
        "given_back": times,
        "thread_waited": courtesy and meanwhile(torch, memlab),
        "refusals": courtesy and refusals(memlab),
    }


# ---- The two of them ----


def run(kind):
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--child", kind],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def left_of(figures):
    """Bytes of the process; of all where NVML lists it by an id of another namespace."""
    own = figures["own_bytes"]
    return figures["used_bytes"] if own is None else own


def main():
    options = parse()
    if options.child:
        print(json.dumps(train(options)))
        return 0
    plain, courtesy = run("plain"), run("courtesy")
    during = [
        figures
        for each in courtesy["given_back"]
        for figures in each["memory"]["during"].values()
    ]
    told = {
        **courtesy,
        "losses_without": plain["losses"],
        "losses_equal": courtesy["losses"] == plain["losses"],
        "nothing_left": bool(during) and not any(map(left_of, during)),
    }
    print(json.dumps(told))
    return 0 if told["losses_equal"] and told["nothing_left"] else 1


if __name__ == "__main__":
    sys.exit(main())
