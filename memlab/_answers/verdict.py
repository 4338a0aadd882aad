"""The verdict on a run: what happened on a device, why, and what to change."""

from typing import TypedDict

from memlab._answers.lab import Advice, MakeFit
from memlab._answers.peaks import Moment, Totals


class Finding(TypedDict):
    """A fact, with bytes as a part of a total; file "": no line.  since_step, and the
    other keys of Growing: only for growth, else None.
    """

    kind: str
    stage: str
    since_step: int | None
    steps: int
    graph: bool
    holder: str
    bytes: int
    of_bytes: int
    file: str
    line: int
    function: str
    module: str
    how: str


class VerdictPeak(Totals):
    """Each total's own peak; the moment, stage and line are those of allocated bytes.
    """

    stage: str
    moment: Moment
    file: str
    line: int
    function: str
    module: str
    how: str


class Verdict(TypedDict):
    """The verdict on one device: findings, most urgent first, and changes that save
    most.  tried: changes were searched for.  make_fit: only if that device ran out of
    memory, or nearly, and changes were searched for.  total_bytes: of the GPU, None if
    unknown.
    """

    device: int
    total_bytes: int | None
    peak: VerdictPeak
    findings: list[Finding]
    tried: bool
    changes: list[Advice]
    make_fit: MakeFit | None
