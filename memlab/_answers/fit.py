"""Whether a program fits on a GPU."""

from typing import TypedDict

from memlab._answers.oom import Place
from memlab._answers.peaks import Category, PeakLine


class FitSettings(TypedDict):
    """Settings of the allocator that reserve less; fits: with them there is room."""

    conf: str
    reserved_peak_bytes: int
    saving_bytes: int
    fits: bool


class FitDevice(TypedDict):
    """What a program takes of one device; rank None: of the only process.

    total_bytes = reserved_peak_bytes + outside_bytes.  headroom_bytes is what all ranks
    leave of capacity_bytes, negative where that is not enough.  fits: of this device.
    reserved_peak_range_bytes: the least and the most over the driver placements that were
    tried.
    """

    device: int
    rank: int | None
    name: str
    fits: bool
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    outside_bytes: int
    total_bytes: int
    capacity_bytes: int
    headroom_bytes: int
    reserved_peak_range_bytes: list[int]
    settings: FitSettings | None
    retries: int
    ooms: int
    by_category: dict[Category, int]
    by_line: list[PeakLine]


class FitOom(Place):
    """Where memory ran out; file "" where reason says why there is no line, device and
    requested_bytes None where torch's allocator was not asked.  error: what the program
    ended by, None where it showed none.
    """

    device: int | None
    rank: int | None
    reason: str
    requested_bytes: int | None
    error: str | None


class FitTried(TypedDict):
    """A value that was tried; the bytes, of the fullest device, are None where it does not
    fit.  error: what the program failed of with the value, which then counts as one that
    does not fit; else None.
    """

    value: int
    fits: bool
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None
    total_bytes: int | None
    error: str | None


class FitVary(TypedDict):
    """The search for the largest value that fits; largest None: none does.

    monotonic: among the values that fit none had less allocated than a lower one.
    """

    name: str
    lowest: int
    highest: int
    largest: int | None
    monotonic: bool
    tried: list[FitTried]


class FitAnswer(TypedDict):
    """What memlab.fit() answers.

    ended: "end" the program did by itself, "stopped" it was after its steps, "time" was
    over.  steps: of the optimizer; steps_after_peak: of them after a peak last rose.
    """

    fits: bool
    program: str
    gpu: str
    torch: str
    devices: list[FitDevice]
    out_of_memory: FitOom | None
    ended: str
    steps: int
    steps_after_peak: int
    notes: list[str]
    vary: FitVary | None
