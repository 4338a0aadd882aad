"""%memlab free: drops the results and errors that IPython itself keeps.

Owns where IPython keeps them.  The user's own names stay.
"""

import gc
import re
import sys
import traceback

from memlab import _core
from memlab._objects.holders import holders
from memlab._text.line_text import readable_size

_NUMBERED = re.compile(r"_\d+")
_LAST = ("last_exc", "last_value", "last_type", "last_traceback")


def free(shell) -> str:
    """Drops the results and the last error that SHELL keeps, and gives torch's cached
    memory back to the GPUs.  Reports the freed memory in one line.
    """
    before = _allocated()
    results = _drop_results(shell)
    error = _drop_error(shell)
    # Cycles hold the rest, such as an exception and the frame that caught it.
    gc.collect()
    what = [f"{results} results" if results != 1 else "1 result"] if results else []
    what += [f"the {error}"] if error else []
    dropped = f"dropped {' and '.join(what)}" if what else "nothing to drop"
    return f"{dropped}; {_told(before)}"


def _drop_results(shell) -> int:
    """Drops Out, _, __, ___ and _1, _2 and so on; returns their number."""
    hook, names, hidden = shell.displayhook, shell.user_ns, shell.user_ns_hidden
    results = names.get("_oh", {})
    count = len(results)
    for number, value in list(results.items()):
        # The user may have assigned _7 himself.
        if names.get(f"_{number}") is value:
            del names[f"_{number}"]
    for name in [n for n in hidden if _NUMBERED.fullmatch(n) and n not in names]:
        del hidden[name]
    results.clear()
    for name in ("_", "__", "___"):
        kept = getattr(hook, name)
        for namespace in (names, hidden):
            if name in namespace and namespace[name] is kept:
                namespace[name] = ""
        setattr(hook, name, "")
    shell.last_execution_result = None
    return count


def _drop_error(shell) -> str | None:
    """Drops the last exception, the values in its frames, and %debug's; returns its
    name.
    """
    last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    for error in _errors_of(last):
        # Running frames keep their values.
        traceback.clear_frames(error.__traceback__)
    for name in _LAST:
        if hasattr(sys, name):
            delattr(sys, name)
    for formatter in (shell.InteractiveTB, shell.SyntaxTB):
        for name in ("tb", "pdb", "last_syntax_error"):
            if getattr(formatter, name, None) is not None:
                setattr(formatter, name, None)
    return None if last is None else type(last).__name__


def _errors_of(error):
    """ERROR, its causes and contexts, and the members of groups, each once."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            waiting += [each.__cause__, each.__context__]
            members = getattr(each, "exceptions", ())
            waiting += members if isinstance(members, tuple) else ()
            yield each


def _torch_with_gpus():
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _allocated() -> list[int]:
    torch = _torch_with_gpus()
    if torch is None:
        return []
    return [torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count())]


def _told(before: list[int]) -> str:
    torch = _torch_with_gpus()
    if torch is None:
        found = sys.modules.get("torch")
        if found is not None and not found.cuda.is_available():
            return "torch sees no GPU here"
        return "torch has used no GPU"
    devices = range(len(before))
    after = _allocated()
    reserved = [torch.cuda.memory_reserved(i) for i in devices]
    # While Courtesy has given the context back, a CUDA call would wait for it.
    if not _core.context_away():
        torch.cuda.empty_cache()
    gone = [reserved[i] - torch.cuda.memory_reserved(i) for i in devices]
    said = [
        f"cuda:{i}: freed {before[i] - after[i]:,} bytes of tensors, "
        f"{readable_size(after[i])} are left, "
        f"{readable_size(gone[i])} of cache given back to the GPU"
        for i in devices
        if before[i] or gone[i]
    ]
    if said and before == after:
        said += _largest_left(torch)
    return "; ".join(said) or "the GPU holds no tensors"


def _largest_left(torch) -> list[str]:
    """The holders of Python's largest tensor on a GPU."""
    found = [
        tensor
        for tensor in gc.get_objects()
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cuda
    ]
    if not found:
        return []
    largest = max(found, key=lambda tensor: tensor.untyped_storage().nbytes())
    size, place = largest.untyped_storage().nbytes(), largest.device
    found.clear()
    # This function's own name for it is not the user's.
    named = [str(h) for h in holders(largest) if "_largest_left" not in str(h)]
    by = f", held by {named[0]}" if named else ""
    return [f"the largest has {readable_size(size)} on {place}{by}"]
