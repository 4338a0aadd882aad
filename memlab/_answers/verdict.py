"""The verdict on a run: what happened on a device, why, and what to change."""

from typing import TypedDict

from memlab._answers.findings import Finding
from memlab._answers.lab import Advice, MakeFit
from memlab._answers.peaks import Moment, ProgramLine, Totals


class VerdictPeak(Totals, ProgramLine):
    """Each total's own peak; the moment, stage and line are those of allocated bytes.
    """

    stage: str
    moment: Moment


class Change(Advice):
    """A change that saves much.  text: what to do, and what it saves.  code: to paste, after
    its line."""

    text: str
    code: str


class Verdict(TypedDict):
    """The verdict on one device: findings, most urgent first, and changes that save
    most.  tried: changes were searched for.  make_fit: only if that device ran out of
    memory, or nearly, and changes were searched for.  total_bytes: of the GPU
    that processes can have, None if unknown.
    """

    device: int
    total_bytes: int | None
    peak: VerdictPeak
    findings: list[Finding]
    tried: bool
    uses_known: bool
    changes: list[Change]
    make_fit: MakeFit | None
