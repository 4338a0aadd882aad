"""How right the estimated categories of torch's own snapshots are.

    python bench/estimated_categories.py                    # all programs: the table
    python bench/estimated_categories.py --keep DIR NAME... # these; their recordings stay

Each program of fit_programs.py runs on the phantom device, or with --gpu on this GPU, and is
recorded twice at once: by
memlab, which follows owners and autograd, and by torch's own recorder.  The table compares,
block by block at the peak, what memlab estimates from torch's snapshot with what it knows
from its own recording.  Bytes whose category memlab does not know itself are left out.

judged: the share of the bytes at the peak whose category memlab knows; right: of these; module:
the share of activations whose module's name stands for one module, or repeats of one.

A name may end in +late: both begin after the first optimizer step, with the model, its
gradients and the optimizer's state already there; or in +native: with C++ frames; or in
+stripped: torch's recorder cannot run along (torch 2.11 raises a SystemError where it records
while a checkpoint stops its recomputation early), and memlab's recording is written with
torch's keys alone.  Two kinds of programs need transformers or torchvision.
"""

import argparse
import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

ENTRIES = 4_000_000
# The rules were made, or mended, on these.
MADE_ON = """
    gpt2_fp32 gpt_blocks_checkpointed+stripped resnet18 lstm gan recommender
    llama_master_weights tv_resnet50_amp_cl tv_vit_b_16_amp gpt2_fp32+late resnet18+native
    gpt2_sgd+native
""".split()
# And on these they are held.
HELD_ON = """
    gpt2_fp16 gpt2_bf16 gpt2_accumulation gpt2_gradscaler gpt2_capturable_adamw
    gpt2_loop_adamw gpt2_sgd gpt2_clipped llama_bf16 llama_eager_attn llama_fused_adamw
    llama_checkpointed llama_checkpointed+stripped llama_lora llama_adafactor mistral_bf16
    mixtral qwen2 opt bert roberta_gradscaler distilbert_inference t5 bart whisper clip vit
    swin seq2seq distilled averaged_weights mlp_cuda_graph loader_workers hf_resnet50
    hf_resnet101 hf_regnet hf_convnext hf_mobilenet_v2 resnet34_bf16 resnet18_channels_last
    vgg11 mobilenet_fp16 unet_amp diffusion_unet unet_fp32 conv3d audio_conv1d autoencoder
    tv_efficientnet_b0 tv_convnext_tiny bert+late llama_lora+late t5+late vgg11+late
    gpt2_sgd+late unet_fp32+late swin+late recommender+late mobilenet_fp16+native
    diffusion_unet+native bert+native
""".split()


def record(name, folder):
    """Runs a program under both recorders."""
    import fit_programs
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    import memlab

    program, _, way = name.partition("+")
    known = memlab.MemorySnapshot(max_entries=ENTRIES, source="cuda")
    torch.cuda.init()
    held = []

    def start():
        known.start()
        if way == "stripped":
            return
        torch.cuda.memory._record_memory_history(
            max_entries=ENTRIES, stacks="all" if way == "native" else "python"
        )

    def after_step(optimizer, args, kwargs):
        # As in a script that dumps at its end, while its model is there.
        if not held and way == "late":
            start()
        if optimizer not in held:
            held.append(optimizer)

    register_optimizer_step_post_hook(after_step)
    if way != "late":
        start()
    fit_programs.run(program)
    if way != "stripped":
        torch.cuda.memory._dump_snapshot(str(folder / f"{name}.torch.pickle"))
    known.stop()
    if way == "stripped":
        known._frozen.write_pickle(folder / f"{name}.torch.pickle", False)
    known.save(str(folder / f"{name}.known.pickle"))


def record_apart(name, folder):
    """The same in a forked child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    with contextlib.suppress(BaseException):
        signal.alarm(300)
        try:
            record(name, folder)
        except BaseException:
            print(f"--- {name}", file=sys.stderr)
            traceback.print_exc()
        sys.stdout.flush()
    os._exit(0)


Block = collections.namedtuple("Block", "bytes category exact module place phase")


def blocks_at_peak(path):
    """{address: Block} of what the first device has allocated at the peak."""
    from memlab import _core

    recording = _core.Recording.from_bytes(path.read_bytes())
    moment = recording.peak(0)["peak"]["event"]
    columns = recording.columns("allocations", 0)
    texts = recording.columns("strings")
    words = [
        bytes(texts["bytes"][a:b]).decode()
        for a, b in zip(texts["offsets"], texts["offsets"][1:])
    ]
    found = {}
    for i, (start, free) in enumerate(zip(columns["start"], columns["free"])):
        if start <= moment < free:
            found[columns["address"][i]] = Block(
                columns["bytes"][i],
                _core.COLUMN_TEXTS["category"][columns["category"][i]],
                columns["exact"][i],
                words[columns["module"][i]],
                f"{words[columns['file'][i]]}:{columns['line'][i]}",
                _core.COLUMN_TEXTS["phase"][columns["phase"][i]],
            )
    return found


def rolled_up(module):
    return re.sub(r"(?<![A-Za-z0-9])\d+", "*", module)


Result = collections.namedtuple("Result", "bytes missing judged right wrong modules")


def compare(folder, name):
    """What the two recordings of a program say of its peak."""
    known = blocks_at_peak(folder / f"{name}.known.pickle")
    estimated = blocks_at_peak(folder / f"{name}.torch.pickle")
    judged = right = missing = 0
    wrong = collections.Counter()
    of_module = collections.defaultdict(collections.Counter)
    for address, block in known.items():
        mine = estimated.get(address)
        if mine is None or mine.bytes != block.bytes:
            missing += block.bytes
        elif block.category not in ("unknown", "before_recording"):
            judged += block.bytes
            if mine.category == block.category:
                right += block.bytes
            else:
                wrong[block.category, mine.category] += block.bytes
        if block.module and block.category == "activation":
            of_module[mine.module if mine else ""][rolled_up(block.module)] += (
                block.bytes
            )
    # A name is right of the one module, or the repeats of one, that it stands for most.
    named = sum(max(c.values()) for module, c in of_module.items() if module)
    whole = sum(sum(c.values()) for c in of_module.values())
    total = sum(block.bytes for block in known.values())
    return Result(total, missing, judged, right, wrong, (named, whole))


def share(part, whole):
    return f"{100 * part / whole:6.1f}" if whole else "     -"


def show(folder, title, names):
    """A table and what it comes to."""
    rights = []
    print(f"{title:32} {'MiB':>9} {'judged':>6} {'right':>6} {'module':>6}  wrong, as")
    for name in names:
        try:
            result = compare(folder, name)
        except FileNotFoundError:
            print(f"{name:32} not recorded")
            continue
        told = ", ".join(
            f"{was} as {said} {share(size, result.judged).strip()}"
            for (was, said), size in result.wrong.most_common(3)
            if size * 1000 >= result.judged
        )
        rights.append(100 * result.right / result.judged if result.judged else 0)
        print(
            f"{name:32} {result.bytes / 2**20:9.1f} "
            f"{share(result.judged, result.bytes)} {share(result.right, result.judged)} "
            f"{share(*result.modules)}  {told}".rstrip()
        )
    if rights:
        print(
            f"{len(rights)} recordings: least {min(rights):.1f} %, "
            f"mean {sum(rights) / len(rights):.1f} %, "
            f"{sum(right >= 90 for right in rights)} with 90 % or more\n"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs, default: all")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    parser.add_argument("--again", action="store_true", help="compare those of --keep")
    parser.add_argument("--gpu", action="store_true", help="on this GPU, no phantom")
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    names = args.names or [*MADE_ON, *HELD_ON]
    if args.record:
        for name in names:
            record_apart(name, args.keep)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = args.keep or Path(made)
        folder.mkdir(exist_ok=True)
        if not args.again:
            phantom = [sys.executable, "-m", "memlab", "phantom", "--gpu", "h100"]
            subprocess.run(
                [*([] if args.gpu else phantom),
                 sys.executable, __file__, "--record", "--keep", folder, *names],
                check=True,
            )  # fmt: skip
        if args.names:
            show(folder, "program", args.names)
        else:
            show(folder, "made on", MADE_ON)
            show(folder, "held on", HELD_ON)


if __name__ == "__main__":
    main()
