"""Ranks of one run, and two recordings side by side."""

from typing import TypeAlias, TypedDict

from memlab._answers.peaks import Category


class RankDevice(TypedDict):
    """A device of a rank: its index in the recording, and its number in the process."""

    device: int
    number: int


class RankClock(TypedDict):
    """How a rank's clock was aligned with the first one's; bound_ns None: unknown."""

    method: str
    offset_ns: int
    bound_ns: int | None
    common_steps: int


class Rank(TypedDict):
    """A process of a recording; None for unknown values.  called: "process" if it is of no
    group, else "rank".
    """

    rank: int | None
    called: str
    local_rank: int | None
    world_size: int | None
    file: str
    host: str
    boot_id: str
    pid: int | None
    state: str
    devices: list[RankDevice]
    clock: RankClock


_Line: TypeAlias = tuple[str, int, str, str, str, str]


class SurveyPlace(TypedDict):
    """A line of the program; phase "backward", or "".  reason: why there is no line."""

    file: str
    line: int
    function: str
    module: str
    phase: str
    reason: str


class SurveyGrowing(SurveyPlace):
    """A line that keeps memory step after step on one rank."""

    rank: int
    bytes_per_step: int
    since_step: int


class SurveyOom(SurveyPlace):
    """The last request of a rank that failed; step None: not known."""

    rank: int
    step: int | None
    requested_bytes: int


class SurveyRank(TypedDict):
    """A rank of a survey, and its device with the highest peak; None for unknown values.
    first_buckets_bytes: of DistributedDataParallel's first buckets, those that by chance were
    there at the peak beside others that were made anew.  growing: (file, line, function,
    module, "backward" or "", why there is no line), bytes a step, and the first step.
    """

    rank: int
    world_size: int | None
    host: str
    state: str
    file: str
    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_step: int | None
    last_step: int | None
    ooms: int
    gpu_bytes: int | None
    dropped_events: int
    first_buckets_bytes: int
    by_category: dict[Category, int]
    growing: list[tuple[_Line, int, int]]


class SurveyKind(TypedDict):
    """Ranks that are alike at their peaks; by_category: of the first."""

    ranks: list[int]
    lowest_peak_bytes: int
    highest_peak_bytes: int
    highest_reserved_bytes: int
    by_category: dict[Category, int]


class SurveyLine(SurveyPlace):
    """What one rank has more than another at a line."""

    difference_bytes: int


class SurveyUnlike(SurveyKind):
    """Ranks that differ from a kind of more.  rank: of these the one with the highest
    peak, in step; like: the rank that it is compared to, one of like_ranks.
    """

    rank: int
    step: int | None
    like: int
    like_ranks: int
    difference_bytes: int
    by_line: list[SurveyLine]


class SurveyBehind(TypedDict):
    """A rank whose last step is at least two before the usual one, the lower median."""

    rank: int
    last_step: int
    usual_step: int


class Survey(TypedDict):
    """The ranks of a large run; lists of ranks are in order.  unlike: few ranks that differ
    from many; differing: kinds that have most in common with a larger one.
    """

    ranks: list[SurveyRank]
    world_size: int | None
    missing_ranks: list[int]
    highest: int | None
    median_peak_bytes: int
    kinds: list[SurveyKind]
    unlike: list[SurveyUnlike]
    differing: list[SurveyUnlike]
    ran_out: list[int]
    ooms: list[SurveyOom]
    killed: list[int]
    behind: list[SurveyBehind]
    growing: list[SurveyGrowing]


class Two(TypedDict):
    """Live bytes, and blocks, at two peaks."""

    before_bytes: int
    after_bytes: int
    difference_bytes: int
    before_blocks: int
    after_blocks: int


class DifferenceLine(Two):
    """The memory of one line at both peaks, in a backward pass or not.  The place is
    the second recording's or, if the line is gone there, the first's, as in before_file
    and so on.
    """

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
    """The memory of one module at both peaks; module "" if reason says why there is
    none.
    """

    module: str
    reason: str


class DifferenceInstant(TypedDict):
    """An instant of a recording: the number of events before it, its time in unix
    microseconds, and the training step.  If the last of these events allocates, phase
    is its phase.
    """

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
    """The same at each recording's peak within one phase.  An instant is None if its
    recording lacks the phase; there are then no lines, modules or categories.
    """

    phase: str


class Difference(_Difference):
    """The memory that one instant has more than another; each grouping sums to
    difference_bytes.
    """

    phases: list[DifferencePhase]
    phases_left_out: int


class DifferenceSide(TypedDict):
    """One side of `memlab diff`: its file's path, and the part that was compared."""

    file: str
    at: str
    device: int
    name: str


class Diff(TypedDict):
    """The output of `memlab diff --json`."""

    before: DifferenceSide
    after: DifferenceSide
    difference: Difference


class RankDifference(Difference):
    """The same compared with the rank of this number, or with a rank of this file."""

    rank: int | None
    file: str


class RankPeak(Rank):
    """A rank with the peak of its fullest device; None: it has no device."""

    device: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_time_us: int | None
    peak_step: int | None
    dropped_events: int
    peak_before_window: bool


class MergedRanks(TypedDict):
    """The output of `memlab merge --json`: ranks by peak, and why the highest is
    higher.
    """

    ranks: list[RankPeak]
    world_size: int | None
    missing_ranks: list[int]
    worst: int | None
    compared_to: RankDifference | None
