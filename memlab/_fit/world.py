"""The world of a program of many ranks: `memlab fit --world-size`.

Owns its size, the environment of a rank, and which ranks are run.
"""

from __future__ import annotations

import dataclasses
import re

from memlab import phantom
from memlab._fit.run import ranks_of

_GPUS_OF_A_NODE = 8
# Ranks of their own kind that are run if none are given.
_MOST_KINDS = 16


@dataclasses.dataclass(frozen=True)
class World:
    """size ranks on nodes machines; ranks: those that are asked for, None: one of each
    kind.
    """

    size: int
    nodes: int
    ranks: tuple[int, ...] | None

    @property
    def local(self):
        """Ranks of a node."""
        return self.size // self.nodes

    def variables(self, rank):
        """The environment that torchrun gives to RANK."""
        node, local = divmod(rank, self.local)
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": self.size,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.local,
            "GROUP_RANK": node,
            "GROUP_WORLD_SIZE": self.nodes,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": self.size,
            "MASTER_PORT": 29500,
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        return {
            **{name: str(number) for name, number in numbers.items()},
            "ROLE_NAME": "default",
            "MASTER_ADDR": "localhost",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RUN_ID": "memlab",
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
            # No other rank posts what it broadcasts: none is waited for.
            "MEMLAB_PHANTOM_ALONE": "1",
        }

    def first(self):
        """The ranks to run at first, with the reason for each."""
        if self.ranks is not None:
            return dict.fromkeys(self.ranks, "asked for")
        return {0: "the first"}

    def others(self, layout):
        """The further ranks, with reasons, after the first one told LAYOUT: its groups of
        pipeline stages, and its meshes.
        """
        if self.ranks is not None:
            return {}
        found = {}
        for stages in layout["stages"]:
            for stage, rank in enumerate(stages):
                found.setdefault(rank, f"stage {stage} of {len(stages)}")
        found.setdefault((self.size - 1) // 2, "in the middle")
        found.setdefault(self.size - 1, "the last")
        for sizes, names in layout["meshes"]:
            for rank, name in _edges(sizes, names):
                found.setdefault(rank, f"the last along {name}")
        found.pop(0, None)
        return dict(list(found.items())[: _MOST_KINDS - 1])


def of(size, nodes, ranks, words, devices=None) -> World | None:
    """The world of the options --world-size, --nodes and --ranks, for a command's WORDS;
    None: not asked for.  Raises ValueError.
    """
    if size is None:
        for value, name in ((nodes, "--nodes"), (ranks, "--ranks")):
            if value is not None:
                raise ValueError(f"{name} needs --world-size, the number of all ranks")
        return None
    if devices is not None:
        raise ValueError("--devices and --world-size exclude each other: give --nodes")
    if nodes is None:
        local = min(size, ranks_of(words) or _GPUS_OF_A_NODE)
        if size % local:
            raise ValueError(
                f"{size} ranks are not nodes of {local}: give the number of nodes, --nodes"
            )
        nodes = size // local
    if size % nodes:
        raise ValueError(f"{size} ranks do not divide into {nodes} nodes of equal size")
    if size // nodes > phantom.MAX_DEVICES:
        raise ValueError(
            f"{size} ranks on {nodes} {'node' if nodes == 1 else 'nodes'} are "
            f"{size // nodes} of a node; at most {phantom.MAX_DEVICES}: give more --nodes"
        )
    if ranks is not None:
        ranks = tuple(sorted(set(ranks)))
        if not ranks or not 0 <= ranks[0] <= ranks[-1] < size:
            wrong = next((rank for rank in ranks if not 0 <= rank < size), "none")
            raise ValueError(
                f"rank {wrong} is not in a world of {size}: its ranks are 0 to {size - 1}"
            )
    return World(size, nodes, ranks)


def parse_ranks(text):
    """The numbers in TEXT, such as "0,511,1023".  Raises ValueError."""
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        raise ValueError(f"{text!r} are not ranks; write for example 0,511,1023")
    return tuple(int(word) for word in text.split(","))


def _edges(sizes, names):
    """(rank, name) of the last coordinate along each dimension of a mesh of all ranks in
    their order.
    """
    stride = 1
    for size, name in reversed(list(zip(sizes, names))):
        if size > 1:
            yield (size - 1) * stride, name
        stride *= size
