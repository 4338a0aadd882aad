"""Whether a program fits on a GPU."""

from typing import TypedDict

from memlab._answers.oom import Place
from memlab._answers.peaks import Category, PeakLine


class FitSettings(TypedDict):
    """Settings of the allocator that reserve less; fits: the program fits with them."""

    conf: str
    reserved_peak_bytes: int
    saving_bytes: int
    fits: bool


class FitDevice(TypedDict):
    """A program's memory on one device; rank None: the only process.

    total_bytes = reserved_peak_bytes + outside_bytes.  headroom_bytes: capacity_bytes
    less the memory of all ranks, negative if that is too much.  fits: on this device.
    allocated_peak_range_bytes: the least and the most over the tried workspaces, where
    those of convolutions are estimated; reserved_peak_range_bytes: over these and the tried
    driver placements.
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
    allocated_peak_range_bytes: list[int]
    reserved_peak_range_bytes: list[int]
    settings: FitSettings | None
    retries: int
    ooms: int
    by_category: dict[Category, int]
    by_line: list[PeakLine]


class FitOom(Place):
    """The out of memory.  file "" if reason says why there is no line.  device and
    requested_bytes are None if the failed request was not torch's allocator's.  error:
    the program's last error, None if it showed none.
    """

    device: int | None
    rank: int | None
    reason: str
    requested_bytes: int | None
    error: str | None


class FitTried(TypedDict):
    """A value that was tried, with the fullest device's bytes, None if it does not fit.
    error: why the program failed with the value, which then counts as not fitting; else
    None.
    """

    value: int
    fits: bool
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None
    total_bytes: int | None
    error: str | None


class FitVary(TypedDict):
    """The search for the largest value that fits; largest None: none fits.

    monotonic: among the values that fit, none allocated less than a lower one.
    """

    name: str
    lowest: int
    highest: int
    largest: int | None
    monotonic: bool
    tried: list[FitTried]


class FitRank(TypedDict):
    """A rank that was run, and the reason for its choice."""

    rank: int
    reason: str


class FitRows(TypedDict):
    """The rank with the least headroom of those that send each other rows, as tokens for
    experts, if "none", an "even" share or "all" of the rows come to it.  headroom_bytes: negative if it does not
    fit.
    """

    rank: int
    assumed: str
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    total_bytes: int
    headroom_bytes: int


class FitWorld(TypedDict):
    """A world of which ranks were run alone: size is the number of all of them.  decides:
    the rank with the least headroom.  rows: three, where ranks tell each other how many rows
    they send; else None.
    """

    size: int
    nodes: int
    ranks: list[FitRank]
    decides: int
    rows: list[FitRows] | None


class FitAnswer(TypedDict):
    """The answer of memlab.fit().  world None: none was asked for.

    ended: "end": the program ended by itself; "failed": by an error of its own, after at
    least one step; "stopped": after its steps; "time": by the timeout.  steps: of the optimizer; steps_after_peak: steps after the last rise
    of a peak.
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
    world: FitWorld | None
    vary: FitVary | None


class SweepRow(TypedDict):
    """A GPU and settings of a sweep, by name.

    vary: the setting of which the largest value was searched, up to highest; largest None:
    none fits.  The bytes are those of the fullest device (rank: its rank), None if nothing
    fits.  total_range_bytes: total_bytes if none, and if all, of the rows for experts come to
    a rank; None: not known, or no rank tells others how many it sends.  price: of an hour of
    all GPUs; None: not given.  error: why the program failed, other than by memory.
    """

    gpu: str
    settings: dict[str, str]
    vary: str | None
    largest: int | None
    highest: int | None
    fits: bool
    allocated_peak_bytes: int | None
    reserved_peak_bytes: int | None
    total_bytes: int | None
    total_range_bytes: list[int] | None
    rank: int | None
    capacity_bytes: int
    headroom_bytes: int | None
    price: float | None
    error: str | None


class Sweep(TypedDict):
    """The answer of memlab.sweep().  cheapest: the number of the row with the lowest price
    that fits; None: no prices, or nothing fits.  tried: runs that were made; reused: tries
    that were in the file of answers; followed: tries that follow from one on a GPU of the
    same chip with more memory.
    """

    program: str
    rows: list[SweepRow]
    cheapest: int | None
    tried: int
    reused: int
    followed: int
