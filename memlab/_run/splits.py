"""How many ranks a group has that torch splits off another, for the phantom's NCCL.

On a GPU the ranks find it out together.  torch knows it before.
"""

import ctypes
import sys


def watch() -> None:
    """Tells the phantom from now on.  torch is imported."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not hasattr(c10d, "ProcessGroup"):
        return
    tell = ctypes.CDLL(None).memlab_phantom_split
    tell.restype = None

    def telling(original, ranks_of):
        def split(*arguments, **options):
            tell(*ranks_of(*arguments))
            try:
                return original(*arguments, **options)
            finally:
                tell(0, 0)

        return split

    def of_new_group(size=0, rank=None, *others):
        # Without a rank this process is not in the group.
        return (size, rank) if rank is not None and 0 <= rank < size else (0, 0)

    def of_split(group, ranks=(), *others):
        own = group.rank()
        return (len(ranks), ranks.index(own)) if own in ranks else (0, 0)

    c10d._new_process_group_helper = telling(c10d._new_process_group_helper, of_new_group)
    group = c10d.ProcessGroup
    if hasattr(group, "split_group"):
        group.split_group = telling(group.split_group, of_split)
