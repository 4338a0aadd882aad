"""Runs in the model of the allocator: replayed, explained, tuned."""

from typing import TypedDict

from memlab._answers.peaks import Moment, Totals


class ReplayPeaks(TypedDict):
    """Peaks of each total alone, over the window of the recording."""

    allocated_peak_bytes: int
    active_peak_bytes: int
    requested_peak_bytes: int
    reserved_peak_bytes: int


class ReplayInstant(Totals):
    """Where most was reserved: after which event, -1 for before the first; what was reserved
    and not active, and of that what lies beside blocks in use."""

    event: int
    unused_bytes: int
    inactive_split_bytes: int


class ReplayOom(TypedDict):
    """The request that fails first; file "" where reason says why there is no line."""

    event: int
    time_us: int
    requested_bytes: int
    reserved_bytes: int
    file: str
    line: int
    function: str
    module: str
    phase: str
    reason: str
    step: int
    least_memory_bytes: int
    missing_bytes: int


class ReplayDevice(ReplayPeaks):
    """What one device would need."""

    device: int
    name: str
    events: int
    mismatched_addresses: int
    mismatched_segments: int
    mismatched_blocks: int
    compared: bool
    allocations: int
    peak_event: int
    reserved_peak_range_bytes: list[int]
    at_reserved_peak: ReplayInstant
    retries: int
    ooms: int
    oom: ReplayOom | None
    driver_calls: int
    memory_bytes: int | None
    recorded: ReplayPeaks
    exact: bool
    inexact_because: list[str]


class Replay(TypedDict):
    """What `memlab replay --json` prints, of the settings and the memory that were asked."""

    conf: str | None
    memory_bytes: int | None
    memory_fraction: float | None
    devices: list[ReplayDevice]


class ExplainedPeak(Totals):
    """The peaks of each total alone, and the allocation that made that of allocated bytes:
    event -1 and file "" where it was before the recording or reason says why."""

    event: int
    time_us: int
    moment: Moment
    file: str
    line: int
    function: str
    module: str
    phase: str
    how: str
    reason: str


class ExplainedReserved(Totals):
    """Totals where most was reserved; of what is free, what lies beside blocks in use."""

    inactive_split_bytes: int


class ExplainedPart(TypedDict):
    """Blocks at the allocated peak of one category, in modules whose paths are equal up to
    their first number; modules: how many these are; reason: why the category is unknown."""

    category: str
    reason: str
    module: str
    bytes: int
    blocks: int
    modules: int


class Savings(TypedDict):
    """By how many bytes peaks fall; below 0: they rise."""

    allocated_saving_bytes: int
    reserved_saving_bytes: int


class Advice(Savings):
    """A change that lowers a peak when the run is replayed with it.

    kind: what is wasted. exact: False where the replay has to assume when memory would be
    freed. together: it still saves where those before it are followed. file "": it is of no
    one line. What bytes, blocks and count are of depends on the kind; name is what an owner
    calls the tensor, conf the settings of the allocator.
    """

    kind: str
    exact: bool
    together: bool
    file: str
    line: int
    function: str
    module: str
    name: str
    bytes: int
    blocks: int
    count: int
    conf: str


class ExplainedTogether(Totals, Savings):
    """Peaks where all advice is followed that saves beside what comes before it."""


class BatchFit(Totals):
    """The largest factor of the batch that fits, 0 for none, and the peaks with it; scaling:
    bytes of the peak that are taken to grow with the batch."""

    memory_bytes: int
    scaling_bytes: int
    factor: float


class Unseen(TypedDict):
    """Bytes of one pass that a run which ran out of memory did not live to ask for, estimated;
    modules: how many were not reached; optimizer_assumed: the state is that of an Adam."""

    modules: int
    forward_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    optimizer_assumed: bool


class Remedy(TypedDict):
    """A change with which the run needs less; tried: in a replay of the program's own
    requests, else estimated; fits: alone; chosen: of the smallest set that fits."""

    kind: str
    module: str
    tried: bool
    count: int
    saving_bytes: int
    needs_bytes: int
    fits: bool
    chosen: bool


class MakeFit(TypedDict):
    """What makes a run fit in memory_bytes: None where that is not known.

    needs: reserved bytes of the whole run, with little and with much assumed of what was
    not recorded. untold_because: why no batch is told. batch_factor and batch_factor_most:
    the largest batch that fits, of the recorded one, with much and with little assumed;
    batch_named: they agree, so that the first is told. batch: that as a number, where an
    argument of the program named it; batch_recorded: 0 where none did. fragmented: where
    memory need not be in one piece, the request that failed succeeds, and so does what
    follows, as far as it can be told."""

    memory_bytes: int | None
    failed: bool
    untold_because: list[str]
    unseen: Unseen
    needs_least_bytes: int
    needs_most_bytes: int
    batch_argument: str
    batch_recorded: int
    batch: int
    batch_named: bool
    batch_factor: float
    batch_factor_most: float
    remedies: list[Remedy]
    chosen_need_bytes: int
    fragmented: bool
    unfragmented_fits: bool


class ExplainedDevice(TypedDict):
    """Why the peak of a device is what it is, and what to change; most saving first.

    recorded: its peaks, of each total alone; peak: those of the same run in the model of the
    allocator, with segments where the driver would put them, with which all else is
    compared. failed: a request failed; in the model it does not.
    """

    device: int
    name: str
    exact: bool
    inexact_because: list[str]
    recorded: Totals
    peak: ExplainedPeak
    at_reserved_peak: ExplainedReserved
    parts: list[ExplainedPart]
    advice: list[Advice]
    together: ExplainedTogether
    batch: BatchFit | None
    make_fit: MakeFit | None
    uses_known: bool
    failed: bool
    tried: int


class Measured(TypedDict):
    """What fits on a GPU with memory_bytes, measured on the phantom device; conf "" and
    batch_argument "": not tried; batch_largest None: none from 1 to batch_given."""

    memory_bytes: int
    conf: str
    conf_fits: bool | None
    batch_argument: str
    batch_given: int
    batch_largest: int | None


class Explanation(TypedDict):
    """What `memlab explain --json` prints, for the memory that was asked about."""

    memory_bytes: int | None
    devices: list[ExplainedDevice]
    measured: Measured | None


class Tuned(TypedDict):
    """What came of some settings, as text of PYTORCH_CUDA_ALLOC_CONF; None: the recorded
    ones."""

    conf: str | None
    reserved_peak_bytes: int
    reserved_peak_range_bytes: list[int]
    allocated_peak_bytes: int
    retries: int
    ooms: int
    driver_calls: int


class TuneDevice(TypedDict):
    """The settings with which one device would have reserved least."""

    device: int
    name: str
    events: int
    memory_bytes: int | None
    base: Tuned
    best: Tuned | None
    fits: bool
    others: list[Tuned]
    trials: int
    out_of_trials: bool
    perfect_packing_bytes: int
    perfect_frees_bytes: int | None
    exact: bool
    inexact_because: list[str]


class Tune(TypedDict):
    """What `memlab tune --json` prints, with the memory that was asked for."""

    memory_bytes: int | None
    devices: list[TuneDevice]
