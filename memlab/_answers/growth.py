"""Lines of a program that leave memory behind step by step."""

from typing import TypedDict


class Growing(TypedDict):
    """A line at which each step leaves memory that is still allocated after the last
    step.

    certain: at least five steps.  graph: likely an autograd graph, whose last node this
    line made; lines: number of lines in the graph.  phase: of the newest block's
    allocation; "backward" for the line's operation.  reason: why there is no line.
    addresses: of some blocks that are allocated at the recording's end.
    """

    bytes_per_step: int
    bytes: int
    blocks: int
    certain: bool
    lines: int
    phase: str
    reason: str
    since_step: int
    steps: int
    graph: bool
    holder: str
    file: str
    line: int
    function: str
    module: str
    how: str
    addresses: list[int]


class Growth(TypedDict):
    """Growth on one device.  steps_by: the kind of steps: "steps", "backward_passes",
    "module_calls", or "" if none is known.
    """

    device: int
    steps_by: str
    steps: int
    last_step: int | None
    lines: list[Growing]
