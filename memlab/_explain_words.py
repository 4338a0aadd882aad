"""What each kind of advice says: a sentence on the waste, and what to write instead.

Owns the words alone; whether an advice is given, and its figures, are the core's.
"""

from __future__ import annotations

from memlab import _report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab._answers import Advice

_size = _report.size


def plural(count: int, word: str) -> str:
    """COUNT with WORD, in the plural where it needs one."""
    return f"{count} {word}{'s' * (count != 1)}"


def _gradients_kept(item):
    return (
        "Gradients live on while the next forward pass runs",
        f"{_size(item['bytes'])} of gradients, in {plural(item['blocks'], 'block')}, are "
        "there at the peak because they are overwritten with zeros instead of freed.",
        "optimizer.zero_grad(set_to_none=True)",
    )


def _late_frees(item):
    return (
        "Blocks are held after their last use",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')} of this line, are "
        "there at the peak though no operator reads or writes them any more.",
        "del the variable that holds it, or the entry of a list, after its last use",
    )


def _checkpoint(item):
    return (
        "Activations are saved that could be computed again",
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')} of "
        f"{plural(item['count'], 'module')}, wait at the peak for the backward pass. "
        "Checkpointing keeps what goes into each of these modules and runs its forward "
        "once more in the backward pass, which takes that time.",
        "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
    )


def _fragmentation(item):
    return (
        "Blocks that stay keep segments that are else free",
        f"{_size(item['bytes'])} are unused in {plural(item['count'], 'segment')} that "
        f"{plural(item['blocks'], 'block')} of this line keep, at the peak of what is "
        "reserved. Made at once, before what comes and goes, they would lie together.",
        "allocate these before the loop, as one tensor if their sizes are known",
    )


def _settings(item):
    write = f"PYTORCH_CUDA_ALLOC_CONF={item['conf']}"
    return (
        "Other settings of the allocator need less",
        f"{_size(item['bytes'])} are reserved and not in use at the peak of what is "
        "reserved.",
        write if item["conf"] else "unset PYTORCH_CUDA_ALLOC_CONF",
    )


# By kind: what the waste is, a sentence on it, and a line to write.  All of it unescaped.
WORDS: dict[str, Callable[[Advice], tuple[str, str, str]]] = {
    "gradients_kept": _gradients_kept,
    "late_frees": _late_frees,
    "checkpoint": _checkpoint,
    "fragmentation": _fragmentation,
    "settings": _settings,
}
