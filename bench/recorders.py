"""The recorders that are compared: each is a context in which the same work runs."""

import contextlib
import inspect
import os
import tempfile

OFF = "off"
FILE = "memlab file"
ENTRIES = 1_000_000  # more than one repeat of any work makes


@contextlib.contextmanager
def recorder(name, max_entries=ENTRIES):
    """Records as NAME says; gives memlab's MemorySnapshot, the path of the file that is
    written, or None."""
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
    elif name == FILE:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recording.mlab")
            with memlab.MemorySnapshot(file=path):
                yield path
    else:
        options = {
            "memlab": {},
            "memlab no stacks": {"context": None},
            "memlab uses": {"uses": True},
        }[name]
        with memlab.MemorySnapshot(max_entries=max_entries, **options) as snapshot:
            yield snapshot


def names(*others):
    """`off` and memlab's recorders, then OTHERS."""
    import memlab

    mine = [OFF, "memlab no stacks", "memlab"]
    if "file" in inspect.signature(memlab.MemorySnapshot).parameters:
        mine.append(FILE)
    return [*mine, *others]
