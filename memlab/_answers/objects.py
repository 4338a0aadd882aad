"""Tensors, their holders, memory without a known holder, and leaks."""

from typing import TypedDict

from memlab._answers.peaks import Line
from memlab._objects.holders import Holder


class UnheldRow(Line):
    """Memory of one line that no known holder keeps.

    keeper: "" for autograd or other C++ code; else "workspace of a library" (by its
    size, as in by_category), "pool of a CUDA graph" or "memory pool", whose id is pool.
    """

    keeper: str
    pool: list[int]


class Unheld(TypedDict):
    """Allocated memory on one device by holder, and the rest of the reserved memory.

    held_bytes + unheld_bytes = allocated_bytes.  With awaiting_free_bytes and
    cached_bytes, the sum is reserved_bytes.  Claims cover claimed_bytes of held_bytes;
    the rest is slack_bytes.  outside_bytes: claimed, but in no block of this allocator.
    """

    device: int
    recorded: bool
    """Whether a recording was under way, which says where blocks come from."""
    changed: bool
    """Memory changed while it was read: figures are of moments close to each other."""
    reserved_bytes: int
    allocated_bytes: int
    awaiting_free_bytes: int
    cached_bytes: int
    split_remainder_bytes: int
    held_bytes: int
    held_blocks: int
    claimed_bytes: int
    slack_bytes: int
    unheld_bytes: int
    unheld_blocks: int
    outside_bytes: int
    outside_claims: int
    rows: list[UnheldRow]


class _ReporterHolders(TypedDict, total=False):
    holders: list[Holder] | None


class ReporterRow(_ReporterHolders):
    """One tensor, or a part of one: its gradient, the values of a sparse one.

    name is as in "weight.grad"; sizes is its shape; elements their product.
    storage_bytes: its whole storage.  used_bytes: the same rounded up to 512; 0 if
    shared_with names a row that has them.  holders, only if requested: the tensor's
    holders, nearest first.  None if the row's name says it, the row uses no bytes of
    its own, or the tensor is gone by now.
    """

    name: str
    sizes: tuple[int, ...]
    elements: int
    used_bytes: int
    storage_bytes: int
    shared_with: str | None


class ReporterDevice(TypedDict):
    """The tensors on one device, and the sums of their rows.

    unheld: of GPUs what else is in torch's allocator, None of others.  To the byte,

        used_bytes - unheld["outside_bytes"] + unheld["slack_bytes"]
            + unheld["unheld_bytes"] = unheld["allocated_bytes"]
    """

    device: str
    elements: int
    used_bytes: int
    rows: list[ReporterRow]
    unheld: Unheld | None


class Leak(TypedDict):
    """A line that left memory behind in each of the last steps, all of which is still
    live.

    Line as in Line.  bytes and blocks are those of these consecutive steps;
    bytes_per_step is their median.
    """

    file: str
    line: int
    until_line: int
    function: str
    bytes: int
    blocks: int
    bytes_per_step: int
    steps: int
    device: int
    phase: str
    backward: bool
    how: str
    module: str
    reason: str
