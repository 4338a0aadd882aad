"""The verdict on a run: what happened on a device, why, and what to change."""

from typing import TypedDict

from memlab._answers.findings import Finding
from memlab._answers.lab import Advice, MakeFit
from memlab._answers.peaks import ModelLine, Moment, Totals


class VerdictPeak(Totals):
    """Peaks of each total alone; the moment, stage and line are of allocated bytes."""

    stage: str
    moment: Moment
    file: str
    line: int
    function: str
    inner: ModelLine | None
    module: str
    how: str


class Verdict(TypedDict):
    """Of one device; findings the most urgent first, changes those that save most; tried:
    whether changes were looked for.  make_fit: where it ran out
    of memory, or nearly, and changes were looked for.  total_bytes: of the GPU, None where not known."""

    device: int
    total_bytes: int | None
    peak: VerdictPeak
    findings: list[Finding]
    tried: bool
    changes: list[Advice]
    make_fit: MakeFit | None
