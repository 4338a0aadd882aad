""""Make it fit" in words: the batch that fits, and the remedies.

The core has the figures and makes the choices.
"""

from __future__ import annotations

from memlab._report.parts import Heading, Said, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import MakeFit, Remedy
    from memlab._report.parts import Part

_size = wording.size

# By kind: the change, and its cost.
_REMEDIES = {
    "settings": ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "no time"),
    "loss_chunked": (
        "the loss in {count} chunks of the tokens, or a fused linear cross entropy",
        "little time",
    ),
    "fused_attention": ("scaled_dot_product_attention", "no time: it is faster"),
    "optimizer_8bit": ("an 8-bit optimizer (bitsandbytes, torchao)", "little time"),
    "bfloat16": (
        "torch.autocast('cuda', torch.bfloat16), if the model computes in float32",
        "no time: it is faster; check the loss",
    ),
    "checkpoint": (
        "torch.utils.checkpoint for the {count} modules {module}",
        "about a third more time",
    ),
    "smaller_batch": (
        "half the batch, with gradients accumulated over {count}",
        "little time; batch normalization sees the smaller batch",
    ),
    "optimizer_sgd": ("SGD without momentum", "another training: tune it anew"),
    "optimizer_offloaded": (
        "optimizer state in host memory (CPU offload)",
        "a copy of it in each step",
    ),
    "lora": ("LoRA: adapters of frozen parameters", "another training, and faster"),
    "fsdp": ("FSDP on {count} GPUs", "communication in each pass"),
}


def batch(fit: MakeFit) -> str:
    """The batch that fits, as far as it is known; else the command that finds it."""
    if not fit["failed"]:
        return ""
    if fit["untold_because"]:
        because = "; ".join(fit["untold_because"])
        return f"Which batch fits cannot be told: {because}. {_measure(fit)}"
    if fit["batch_factor_most"] == 0:
        if fit["batch_recorded"]:
            return f"No batch fits, not even {fit['batch_argument']} 1, estimated."
        return "No batch fits: what does not grow with the batch is too much."
    if not fit["batch_named"]:
        return (
            "Which batch fits cannot be told exactly: too much was still to come. "
            f"{_measure(fit)}"
        )
    factor = fit["batch_factor"]
    if fit["batch_recorded"]:
        said = f"{fit['batch_argument']} {fit['batch']}"
        return f"The batch that fits: {said} ({factor:.2f} times this one), estimated."
    return f"The batch that fits: {factor:.2f} times this one, estimated."


def _measure(fit):
    """The command that measures it, with the program of the recording where it tells that."""
    memory = f" --memory {fit['gpu_bytes'] >> 20}MiB" if fit["gpu_bytes"] else ""
    if fit["batch_recorded"]:
        name, most = fit["batch_argument"].lstrip("-"), fit["batch_recorded"]
        program = fit["program"] or f"train.py {fit['batch_argument']} {most}"
    else:
        name, most, program = "batch", 64, fit["program"] or "train.py"
        program += " --batch 32"
    command = f"memlab fit{memory} --vary {name}=1..{most} {program}"
    return f"To measure it: {wording.escape(command)}"


def unseen(fit: MakeFit) -> str:
    """The part of the run that was not recorded."""
    of = fit["unseen"]
    parts = []
    if of["modules"]:
        parts.append(
            f"{wording.plural(of['modules'], 'module')} not reached "
            f"({_size(of['forward_bytes'])})"
        )
    elif of["forward_bytes"]:
        parts.append(f"the rest of the pass ({_size(of['forward_bytes'])})")
    if of["gradient_bytes"]:
        parts.append(f"gradients ({_size(of['gradient_bytes'])})")
    if of["optimizer_state_bytes"]:
        assumed = ", if it is Adam's" if of["optimizer_assumed"] else ""
        parts.append(
            f"the optimizer's state ({_size(of['optimizer_state_bytes'])}{assumed})"
        )
    return f"Still to come, estimated: {', '.join(parts)}." if parts else ""


def remedy(item: Remedy) -> tuple[str, str]:
    """The change and its cost."""
    what, cost = _REMEDIES[item["kind"]]
    return what.format(count=item["count"], module=item["module"]), cost


def chosen(fit: MakeFit) -> str:
    """The smallest set of remedies that fits; "" if none is known."""
    names = [remedy(item)[0] for item in fit["remedies"] if item["chosen"]]
    if not names:
        return ""
    return (
        f"Fits, estimated, with: {'; '.join(map(wording.escape, names))} "
        f"({_size(fit['chosen_need_bytes'])} of {_size(fit['memory_bytes'])})."
    )


def parts(fit: MakeFit) -> list[Part]:
    """The whole section."""
    memory = fit["memory_bytes"]
    of = f" in {_size(memory)}" if memory is not None else ""
    least, most = fit["needs_least_bytes"], fit["needs_most_bytes"]
    needs = _size(most) if least == most else f"{_size(least)} to {_size(most)}"
    made: list[Part] = [Heading(f"Make it fit{of}"), Said(f"The run needs {needs} reserved.")]
    made += [Said(said) for said in (unseen(fit), batch(fit)) if said]
    rows, counts = [], []
    for item in fit["remedies"]:
        what, cost = remedy(item)
        how = "tried" if item["tried"] else "estimated"
        rows.append(
            (_size(item["saving_bytes"]), how, "fits" if item["fits"] else "", what, cost)
        )
        counts.append(item["saving_bytes"])
    if rows:
        columns = ("saves", "how", "alone", "change", "costs")
        made.append(Table(columns, rows, counts, max(most, 1), names=True))
    said = chosen(fit)
    if said:
        made.append(Said(said))
    return made
