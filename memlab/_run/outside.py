"""Out of memory outside torch's allocator, in words: a CUDA library, NCCL or the driver itself
found no room for what it holds."""

from __future__ import annotations

import re
import sys

from memlab import _core
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = re.compile(
    r"(?P<library>[A-Z]+)_(?:STATUS_)?(?:ALLOC_FAILED|\w*DEVICE_ALLOCATION_FAILED)"
    r"|(?=.*cuda).*out of memory",
    re.IGNORECASE | re.DOTALL,
)
_LIBRARIES = {
    "CUBLAS": "cuBLAS", "CUDNN": "cuDNN", "CUSOLVER": "cuSOLVER", "CUSPARSE": "cuSPARSE",
    "CUFFT": "cuFFT",
}  # fmt: skip
# A smaller part of what torch holds, if it is cached, makes little room.
_CACHED_PART = 20


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """ERROR and its causes."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_of_torch(error: BaseException) -> bool:
    """Whether ERROR alone is an out of memory of torch's allocator."""
    return type(error).__name__ == "OutOfMemoryError"


def _found(error):
    """The match of _FULL in the first of ERROR and its causes that is an out of memory; None:
    there is none, or it is torch's allocator's."""
    for item in chain(error):
        if is_of_torch(item):
            return None
        match = _FULL.search(str(item)) if isinstance(item, RuntimeError) else None
        if match is not None:
            return match
    return None


def ran_out(error: BaseException | None) -> bool:
    """Whether ERROR, or a cause of it, says that memory outside torch's allocator ran out."""
    return _found(error) is not None


def sentences(error: BaseException | None) -> list[str]:
    """What ran out, with what is known of the GPU now, then what to do; empty if ERROR is no
    out of memory outside torch's allocator.  The tensors that it ended with are alive."""
    match = _found(error)
    return [] if match is None else _said(match, _fullest())


def note(error: BaseException | None) -> None:
    """Has this process's recordings say what sentences() does."""
    match = _found(error)
    if match is not None and _core.noting():
        device = _fullest()
        number, free, total, *_ = device or (-1, 0, 0)
        _core.note_no_room(number, " ".join(_said(match, device)), free, total)


def _said(match, device):
    library = (match["library"] or "").upper()
    name = _LIBRARIES.get(library, "CUDA")
    said = f"Out of memory outside torch's allocator: {name} found no room"
    if device is None:
        return [f"{said}.", "Free memory of other processes, which nvidia-smi names."]
    number, free, total, reserved, allocated = device
    return [
        f"{said}. torch held {wording.size(reserved)} of cuda:{number}'s {wording.size(total)}, "
        f"and {wording.size(free)} were free.",
        _remedy(reserved, total, reserved - allocated, total - free - reserved),
    ]


def line(said: str) -> str:
    """SAID, of sentences(), as a line of memlab's own."""
    return f"memlab: {said[0].lower()}{said[1:]}"


def _remedy(reserved, total, cached, others):
    if others > reserved:
        return f"{wording.size(others)} are held by others: nvidia-smi names the processes."
    if cached * _CACHED_PART < reserved:
        return "The batch must be smaller, or the model: all that torch reserved is in use."
    share = reserved / total * 100 // 1 / 100
    return (
        f"The batch must be smaller, or what torch reserves, of which {wording.size(cached)} are "
        f"unused: torch.cuda.set_per_process_memory_fraction() below {share} bounds it."
    )


def _fullest():
    """(number, free, total, reserved, allocated) of that GPU with least free on which torch
    holds memory; None: there is none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    found = []
    for number in range(torch.cuda.device_count()):
        reserved = torch.cuda.memory_reserved(number)
        # To ask about another would make a context there.
        if reserved:
            try:
                free, total = torch.cuda.mem_get_info(number)
            except RuntimeError:  # of a GPU whose context an error ended nothing is known
                continue
            allocated = torch.cuda.memory_allocated(number)
            found.append((number, free, total, reserved, allocated))
    return min(found, key=lambda item: item[1], default=None)
