"""The output of `memlab report --json`."""

from typing import TypedDict

from memlab._answers.comparisons import Rank
from memlab._answers.growth import Growth
from memlab._answers.lines import LineTable
from memlab._answers.oom import Oom
from memlab._answers.peaks import Peak
from memlab._answers.recordings import File
from memlab._answers.verdict import Verdict


class DeviceReport(Peak):
    """One device in a report."""

    name: str
    lines: list[LineTable]
    verdict: Verdict
    growth: Growth


class Report(TypedDict):
    """The output of `memlab report --json`.  file: the path that was read; the instant
    as in memlab report --at.
    """

    file: str | None
    recording: File | None
    unread: dict[str, int]
    source: str
    at: str
    ranks: list[Rank]
    devices: list[DeviceReport]
    oom: list[Oom]
