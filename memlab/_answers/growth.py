"""Lines of a program that leave memory behind step by step."""

from typing import TypedDict

from memlab._answers.peaks import ProgramLine


class Growing(ProgramLine):
    """A line at which each step leaves memory that is still allocated after the last
    step.

    certain: of five steps or more.  graph: likely an autograd graph, whose end this line
    made; lines: of how many lines it is.  phase: in which its newest block was allocated;
    in "backward" for the operation of the line.  reason: why there is no line.  addresses:
    of some of its blocks that are still allocated at the end of the recording.
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
    addresses: list[int]


class GrowingWorkspaces(TypedDict):
    """cuBLAS's workspaces, where each step leaves some for a new stream.  text: in words, with
    what to do.  streams: how many streams have some; the others as of a line.
    """

    text: str
    streams: int
    bytes_per_step: int
    bytes: int
    blocks: int
    since_step: int
    steps: int


class Growth(TypedDict):
    """Growth on one device.  steps_by: the kind of steps: "steps", "backward_passes",
    "module_calls", or "" if none is known.  workspaces: None: they do not grow.
    """

    device: int
    steps_by: str
    steps: int
    last_step: int | None
    lines: list[Growing]
    workspaces: GrowingWorkspaces | None
