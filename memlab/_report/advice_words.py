"""The text of each kind of advice: a sentence on the waste, and code to write instead.

Owns only the words; the core chooses the advice and its figures.
"""

from __future__ import annotations

from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from memlab._answers import Advice

_size = wording.size
plural = wording.plural


def _gradients_kept(item):
    return (
        "Gradients stay allocated during the next forward pass",
        f"{_size(item['bytes'])} of gradients, in {plural(item['blocks'], 'block')}, are "
        "live at the peak: no call frees them, or zero_grad(set_to_none=False) overwrites "
        "them with zeros.",
        "optimizer.zero_grad(), or model.zero_grad() without an optimizer, before the forward "
        "pass: it sets gradients to None",
    )


def _gradients_late(item):
    there = (
        f"{_size(item['bytes'])} of gradients, in {plural(item['blocks'], 'block')}, are "
        "live at the peak: zero_grad() frees them, but only after the next forward pass."
        if item["allocated_saving_bytes"] > 0
        else "zero_grad() frees the gradients only after the next forward pass, so that it "
        "takes other memory, which stays reserved."
    )
    if item["library_switch"]:
        return (
            "Lightning's zero_grad() comes after the forward pass",
            there,
            f"in the LightningModule {item['library_switch']}",
        )
    return (
        "zero_grad() comes after the forward pass",
        there,
        "optimizer.zero_grad(), or model.zero_grad() without an optimizer, right after the "
        "update or before the forward pass",
    )


def _steps_kept(item):
    held = ": only a reference cycle holds them" if item["garbage"] else ""
    return (
        "Each step leaves blocks that are kept",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')} of this line "
        f"or of the graph that ends there, are live at the peak, left by the steps before{held}.",
        "break the cycle, or call gc.collect() in each step"
        if item["garbage"]
        else "empty what holds them, or keep .item() or .detach().cpu() of the tensor instead",
    )


def _late_frees(item):
    held = f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}"
    if item["name"]:
        name = item["name"].partition(" of ")[0]
        also = item["name"].partition("; ")[2]
        return (
            f"{name} is held until it is set again",
            f"{held}, are live at the peak, though nothing reads {name} any more: the line "
            "below frees the old value only once the new one is there.",
            f"del {name}, after its last use" + (f", and {also}" if also else ""),
        )
    return (
        "Blocks are held after their last use",
        f"{held} of this line, are live at the peak though no operator reads or writes "
        "them any more.",
        "del the variable that holds it, or the entry of a list, after its last use",
    )


def _checkpoint(item):
    waiting = (
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')} of "
        f"{plural(item['count'], 'module')}, are saved at the peak for the backward pass. "
        if item["blocks"]
        else f"Activations of {plural(item['count'], 'module')} are saved for the backward "
        "pass, though none at the peak of allocated memory. "
    )
    twice = (
        " Batch normalization in them then updates its running statistics twice a step."
        if item["batch_norm"]
        else ""
    )
    return (
        "Activations are saved that could be recomputed",
        f"{waiting}Checkpointing keeps only the inputs of these modules and runs their forward "
        f"again in the backward pass, which takes time.{twice}",
        item["library_switch"]
        or "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False), or the model's "
        "own switch, such as gradient_checkpointing_enable() of transformers",
    )


def _results_kept(item):
    return (
        "An evaluation keeps its results on the GPU",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}, are live at the peak: "
        "what the calls of the model left, one by one, and what is concatenated of it.",
        "results.append(result.cpu()), or what is needed of it, such as result.argmax(1).cpu()",
    )


def _evaluation_batch(item):
    parts = item["count"]
    return (
        "An evaluation makes the peak",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}, are an evaluation's own "
        f"at the peak. With 1/{parts} of its batch it stays below the peak of the training.",
        f"evaluate with a batch {parts} times smaller",
    )


def _fragmentation(item):
    return (
        "Long-lived blocks keep nearly empty segments",
        f"At the peak of reserved memory, {_size(item['bytes'])} are unused in "
        f"{plural(item['count'], 'segment')} that {plural(item['blocks'], 'block')} of this "
        "line keep. Allocated together, before the short-lived blocks, they would share "
        "segments.",
        "allocate these before the loop, as one tensor if their sizes are known",
    )


def _settings(item):
    write = f"PYTORCH_CUDA_ALLOC_CONF={item['conf']}"
    return (
        "Other allocator settings reserve less",
        f"{_size(item['bytes'])} are reserved and not in use at the peak of reserved memory.",
        write if item["conf"] else "unset PYTORCH_CUDA_ALLOC_CONF",
    )


def _workspaces(item):
    return (
        "Most of the peak is cuBLAS's workspace",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}, are cuBLAS's "
        "workspaces: one for each stream of each thread that multiplies matrices. Their size does "
        "not depend on the model. Smaller ones can slow down large matrix products.",
        f"CUBLAS_WORKSPACE_CONFIG={item['conf']}",
    )


def _graph_unused(item):
    return (
        "A forward pass saves a graph that no backward pass uses",
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')}, are "
        "live at the peak for a backward pass that never comes: an evaluation, or a result "
        "that is kept with its graph.",
        "with torch.no_grad(): around the forward pass; keep results as result.detach()",
    )


def _graph_retained(item):
    return (
        "A backward pass does not free its graph",
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')}, are "
        "live at the peak though their backward pass has run: it retains the graph, or the "
        "program holds them all.",
        "loss.backward() without retain_graph=True, and del loss",
    )


def _graph_shared(item):
    return (
        "Two backward passes run one graph",
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')}, are "
        "live at the peak though their backward pass has run: it retains its whole graph for a "
        "later pass, which runs a part of it again.",
        "shared.detach() in the first loss, if that trains nothing before it, as a "
        "discriminator's; else one backward pass of the sum of both losses",
    )


def _frozen_gradients(item):
    return (
        "Gradients that no optimizer reads",
        f"{_size(item['bytes'])} of gradients, and of what the forward pass saves only for "
        f"them, in {plural(item['blocks'], 'block')}, are live at the peak, for parameters that "
        "no optimizer has.",
        "module.requires_grad_(False) for a teacher, an average or an encoder that is not trained",
    )


def _model_copied(item):
    return (
        "A copy of the parameters stays on the GPU",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')} of the parameters' "
        "sizes, are live at the peak. Unless forward passes use the copy, it can be in the "
        "host's memory.",
        "copy model.cpu() or tensor.cpu()",
    )


def _losses_summed(item):
    return (
        "One backward pass runs the graphs of several micro-batches",
        f"{_size(item['bytes'])} of activations, in {plural(item['blocks'], 'block')}, of "
        f"{item['count']} micro-batches are live at the peak: their losses are summed, and "
        "backward() is called once.",
        f"(loss / {item['count']}).backward() on the loss of each micro-batch, right after its "
        "forward pass; the gradients add up",
    )


def _logits_float32(item):
    return (
        "Logits are cast to float32 for the loss",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}, are live at the "
        "peak. In the 16 bits of the logits they take half, and the cast disappears. The loss is "
        "then less exact; in chunks of the tokens it saves more and stays in float32.",
        "with torch.autocast('cuda', enabled=False): cross_entropy(logits, targets), without "
        "logits.float(); autocast would cast them, too",
    )


def _loss_whole(item):
    return (
        "The loss is computed for all tokens at once",
        f"{_size(item['bytes'])}, in {plural(item['blocks'], 'block')}, are live at the "
        "peak: logits, and what the loss computes from them. In "
        f"{plural(item['count'], 'chunk')} of the tokens, each recomputed in the backward "
        "pass, the loss needs only a part of that.",
        f"{item['library_switch']}, which fuses the head and the loss of the models that "
        "liger-kernel knows, and needs it"
        if item["library_switch"]
        else "loss = sum(checkpoint(head_and_loss, h, t, use_reentrant=False) for h, t in "
        f"zip(hidden.chunk({item['count']}), targets.chunk({item['count']}))), of tokens in one "
        "dimension",
    )


def _grown(item):
    return (
        "A tensor grows by copies of itself",
        f"{_size(item['bytes'])} at the peak, in {plural(item['blocks'], 'block')}, are old "
        f"versions of a tensor of which this line has a larger copy; it made {item['count']} "
        "such copies.",
        "allocate the tensor once with its final size, and write into it",
    )


def _optimizer_temporaries(item):
    there = (
        f"{_size(item['bytes'])} of temporaries, in {plural(item['blocks'], 'block')}, are "
        "live at the peak"
        if item["blocks"]
        else "They are freed at the peak of allocated memory, but stay reserved"
    )
    fused = item["conf"] != "foreach=False"
    instead = (
        "A fused optimizer allocates none; one without foreach allocates those of one "
        "parameter at a time."
        if fused
        else "Without foreach it allocates those of one parameter at a time. It has no fused form."
    )
    return (
        "The optimizer allocates temporaries for all parameters at once",
        f"{there}. {instead}",
        f"{item['optimizer'] or 'OPTIMIZER'}(parameters, {item['conf']})"
        + (", or foreach=False" if fused else ""),
    )


def _data_kept(item):
    return (
        "Data stay on the GPU for the whole run",
        f"{_size(item['bytes'])} are live from before the first forward pass until after the "
        "last. The inputs of each step are a small part of that size.",
        "keep the data in pinned memory, and copy rows.to('cuda', non_blocking=True)",
    )


# By kind: the waste, a sentence on it, and a line of code.  All unescaped.
WORDS: dict[str, Callable[[Advice], tuple[str, str, str]]] = {
    "gradients_kept": _gradients_kept,
    "gradients_late": _gradients_late,
    "graph_unused": _graph_unused,
    "graph_retained": _graph_retained,
    "graph_shared": _graph_shared,
    "frozen_gradients": _frozen_gradients,
    "model_copied": _model_copied,
    "losses_summed": _losses_summed,
    "logits_float32": _logits_float32,
    "loss_whole": _loss_whole,
    "grown_by_copies": _grown,
    "optimizer_temporaries": _optimizer_temporaries,
    "data_kept": _data_kept,
    "steps_kept": _steps_kept,
    "late_frees": _late_frees,
    "checkpoint": _checkpoint,
    "results_kept": _results_kept,
    "evaluation_batch": _evaluation_batch,
    "fragmentation": _fragmentation,
    "settings": _settings,
    "workspaces": _workspaces,
}
