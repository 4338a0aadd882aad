"""Ranks of one run, and two recordings side by side."""

from typing import TypedDict

from memlab._answers.peaks import Category


class RankDevice(TypedDict):
    """A device of a rank: its index in the recording, and its number in the process."""

    device: int
    number: int


class RankClock(TypedDict):
    """How the clock of a rank was set to that of the first; bound_ns None: not known."""

    method: str
    offset_ns: int
    bound_ns: int | None
    common_steps: int


class Rank(TypedDict):
    """A process of a recording; None for what it does not say."""

    rank: int | None
    local_rank: int | None
    world_size: int | None
    file: str
    host: str
    boot_id: str
    pid: int | None
    state: str
    devices: list[RankDevice]
    clock: RankClock


class Two(TypedDict):
    """Live bytes, and blocks, at two peaks."""

    before_bytes: int
    after_bytes: int
    difference_bytes: int
    before_blocks: int
    after_blocks: int


class DifferenceLine(Two):
    """What is of one line, in a backward pass or not, at both; the place is that of the
    second recording, or where it is gone, as in before_file and so on, of the first."""

    file: str
    line: int
    function: str
    before_file: str
    before_line: int
    before_function: str
    change: str
    move: str
    matched_by: str
    module: str
    category: str
    phase: str
    reason: str


class DifferenceModule(Two):
    """What is of one module at both; module "" where reason says why there is none."""

    module: str
    reason: str


class DifferenceInstant(TypedDict):
    """An instant of a recording: how many events were before it, its time in unix
    microseconds, the training step, and the phase of the last of these events where that
    allocates."""

    event: int
    time_us: int
    step: int
    phase: str


class _Difference(Two):
    before: DifferenceInstant | None
    after: DifferenceInstant | None
    by_line: list[DifferenceLine]
    by_module: list[DifferenceModule]
    by_category: dict[Category, int]


class DifferencePhase(_Difference):
    """The same where most was allocated in one phase; an instant is None where its
    recording has no such phase, and nothing is by line, module or category then."""

    phase: str


class Difference(_Difference):
    """What is more at one instant than at another: each grouping adds up to
    difference_bytes."""

    phases: list[DifferencePhase]
    phases_left_out: int


class DifferenceSide(TypedDict):
    """One side of `memlab diff`: the path of its file, and what of it was looked at."""

    file: str
    at: str
    device: int
    name: str


class Diff(TypedDict):
    """What `memlab diff --json` prints."""

    before: DifferenceSide
    after: DifferenceSide
    difference: Difference


class RankDifference(Difference):
    """The same against the rank of this number, or where it has none of this file."""

    rank: int | None
    file: str


class RankPeak(Rank):
    """A rank with the peak of its fullest device, which None says that it has none."""

    device: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_time_us: int | None
    peak_step: int | None
    dropped_events: int
    peak_before_window: bool


class MergedRanks(TypedDict):
    """What `memlab merge --json` prints: ranks by peak, and why the highest is higher."""

    ranks: list[RankPeak]
    world_size: int | None
    missing_ranks: list[int]
    worst: int | None
    compared_to: RankDifference | None
