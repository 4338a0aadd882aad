"""A change of the program in two short lines: the action and its saving, then the code.

advice_words.py has the full text of each kind, with reasons.
"""

from __future__ import annotations

from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import Advice, Savings, Totals

# By kind: the action, and its code.
DO: dict[str, tuple[str, str]] = {
    "gradients_kept": ("Free the gradients before the forward pass", "optimizer.zero_grad()"),
    "gradients_late": ("Free the gradients before the forward pass", "optimizer.zero_grad()"),
    "graph_unused": ("Run the evaluation without a graph", "with torch.no_grad():"),
    "graph_retained": ("Let the backward pass free its graph", "loss.backward(); del loss"),
    "frozen_gradients": ("Freeze what no optimizer trains", "module.requires_grad_(False)"),
    "model_copied": ("Keep the copy of the parameters on the host", "copy = copy.cpu()"),
    "logits_float32": (
        "Compute the loss in the logits' 16 bits",
        "with torch.autocast('cuda', enabled=False):",
    ),
    "loss_whole": (
        "Compute the loss in chunks of the tokens",
        "checkpoint(head_and_loss, chunk, use_reentrant=False)",
    ),
    "grown_by_copies": ("Allocate the tensor once, at its final size", "out[a:b] = part"),
    "optimizer_temporaries": ("Use the fused optimizer", "AdamW(parameters, fused=True)"),
    "data_kept": ("Keep the data on the host", "rows.to('cuda', non_blocking=True)"),
    "late_frees": ("Free it after its last use", "del NAME"),
    "checkpoint": (
        "Recompute activations",
        "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
    ),
    "evaluation_batch": ("Evaluate in smaller batches", "DataLoader(..., batch_size=B)"),
    "fragmentation": ("Allocate long-lived blocks together", "before the loop"),
    "settings": ("Change the allocator's settings", ""),
    "workspaces": ("Shrink cuBLAS's workspaces", ""),
}


# Less than this share of a peak is not told.
WORTH_TELLING = 0.01


def saving(item: Savings, peak: Totals) -> str:
    """By how much a change lowers the peaks PEAK."""
    less, more = [], []
    for name in ("allocated", "reserved"):
        saved = item[f"{name}_saving_bytes"]  # type: ignore[literal-required]
        least = WORTH_TELLING * peak[f"{name}_bytes"]  # type: ignore[literal-required]
        if saved >= least > 0:
            less.append(f"{wording.size(saved)} {name}")
        elif saved <= -least < 0:
            more.append(f"but {wording.size(-saved)} more {name}")
    return ", ".join(less + more)


def _code(item):
    kind = item["kind"]
    if kind == "settings":
        conf = item["conf"]
        return f"PYTORCH_CUDA_ALLOC_CONF={conf}" if conf else "unset PYTORCH_CUDA_ALLOC_CONF"
    if kind == "workspaces":
        return f"CUBLAS_WORKSPACE_CONFIG={item['conf']}"
    if kind == "evaluation_batch":
        return f"DataLoader(..., batch_size=B // {item['count']})"
    return DO[kind][1]


def lines(item: Advice, peak: Totals, place: str) -> tuple[str, str]:
    """What to do and what it saves of the peaks PEAK; PLACE, escaped, "" where there is none, with the code."""
    what, _ = DO[item["kind"]]
    module = wording.escape(item["module"]) if item["module"].strip("*") else ""
    where = f" in {module}" if module else ""
    sure = "" if item["exact"] else " (estimated)"
    code = wording.escape(_code(item))
    return f"{what}{where}: saves {saving(item, peak)}{sure}", f"{place}: {code}" if place else code
