"""The recorders that are compared: each is a context in which the same work runs."""

import contextlib

OFF = "off"
ENTRIES = 1_000_000  # more than one repeat of any work makes


@contextlib.contextmanager
def recorder(name, max_entries=ENTRIES):
    """Records as NAME says; gives memlab's MemorySnapshot, or None."""
    import torch

    import memlab

    if name == OFF:
        yield None
    elif name.startswith("torch"):
        torch.cuda.memory._record_memory_history(
            "all",
            context=None if name == "torch no stacks" else "all",
            stacks="all" if name == "torch all" else "python",
            max_entries=max_entries,
        )
        try:
            yield None
        finally:
            torch.cuda.memory._record_memory_history(None)
    else:
        assert name in ("memlab", "memlab no stacks"), name
        context = None if name == "memlab no stacks" else "all"
        with memlab.MemorySnapshot(max_entries=max_entries, context=context) as snapshot:
            yield snapshot


def names(*others):
    """`off` and memlab's recorders, then OTHERS."""
    return [OFF, "memlab no stacks", "memlab", *others]
