"""Runs in the model of the allocator: replayed, explained, tuned."""

from typing import TypedDict

from memlab._answers.findings import Finding
from memlab._answers.peaks import ModelLine, Moment, Totals


class ReplayPeaks(TypedDict):
    """Each total's own peak in the recording's window."""

    allocated_peak_bytes: int
    active_peak_bytes: int
    requested_peak_bytes: int
    reserved_peak_bytes: int


class ReplayInstant(Totals):
    """The instant of the reserved peak: the event (-1: before the first), the bytes
    reserved but not active, and the part of these beside blocks in use.
    """

    event: int
    unused_bytes: int
    inactive_split_bytes: int


class ReplayOom(TypedDict):
    """The first failed request; file "" if reason says why there is no line."""

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
    """The need of one device."""

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
    """The output of `memlab replay --json`, for the requested settings and memory."""

    conf: str | None
    memory_bytes: int | None
    memory_fraction: float | None
    devices: list[ReplayDevice]


class ExplainedPeak(Totals):
    """Each total's own peak, and the allocation that made the allocated peak.  Event
    -1: it was before the recording.  file "" if reason says why there is no line.
    """

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
    """Totals at the reserved peak, and the free bytes beside blocks in use."""

    inactive_split_bytes: int


class ExplainedPart(TypedDict):
    """Blocks at the allocated peak, of one category and of modules with equal paths up
    to their first number.  modules: their number.  reason: why the category is unknown.
    """

    category: str
    reason: str
    module: str
    bytes: int
    blocks: int
    modules: int


class Savings(TypedDict):
    """Bytes by which peaks fall; negative: they rise.  saves: in words, without what is
    less than 1 % of a peak."""

    allocated_saving_bytes: int
    reserved_saving_bytes: int
    saves: str


class Advice(Savings):
    """A change that lowers a peak when the run is replayed with it.

    kind: the waste.  exact: False if the replay assumes when memory would be freed.
    at_most: the saving is an upper bound, as variables may hold what the replay frees.
    batch_norm: of checkpoints, batch normalization would run twice a step.
    garbage: of steps_kept, a reference cycle alone holds the blocks.
    together: it still saves after the advices before it.  file "": no single line.
    inner: of a loss in a library, the model's own line; None elsewhere.  The kind decides
    the meaning of bytes, blocks and count.  name: the owner's name for the
    tensor, or, as "x of train", the variable that holds it.  library_switch: what to
    write where the library that trains, or has the model, has a switch for it; "" if none.
    optimizer: of its temporaries the class, "" if not known.
    conf: allocator settings.
    """

    kind: str
    exact: bool
    at_most: bool
    batch_norm: bool
    garbage: bool
    together: bool
    file: str
    line: int
    function: str
    inner: ModelLine | None
    module: str
    name: str
    library_switch: str
    optimizer: str
    bytes: int
    blocks: int
    count: int
    conf: str


class ExplainedTogether(Totals, Savings):
    """Peaks with all advices that still save after those before them."""


class BatchFit(Totals):
    """The largest factor of the batch that fits (0: none), and the peaks with it.
    scaling: bytes of the peak that are assumed to grow with the batch.
    """

    memory_bytes: int
    scaling_bytes: int
    factor: float


class Unseen(TypedDict):
    """Estimated bytes of one pass that a run out of memory had not yet requested.
    modules: number of modules not reached; optimizer_assumed: the state is that of an
    Adam.
    """

    modules: int
    forward_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    optimizer_assumed: bool


class Remedy(TypedDict):
    """A change that lowers the need.  tried: in a replay of the program's own requests,
    else estimated; fits: alone; chosen: in the smallest set that fits. text: what to change;
    costs: in time and work, in words.
    """

    kind: str
    module: str
    text: str
    costs: str
    tried: bool
    count: int
    saving_bytes: int
    needs_bytes: int
    fits: bool
    chosen: bool


class MakeFit(TypedDict):
    """How a run fits in memory_bytes; None: unknown.

    needs: reserved bytes of the whole run, with little and with much assumed of what was
    not recorded. untold_because: why no batch is told. batch_factor and batch_factor_most:
    the largest batch that fits, of the recorded one, with much and with little assumed;
    batch_named: they agree, so that the first is told. batch: that as a number, where an
    argument of the program named it, or its DataLoader has it; batch_recorded: 0 where
    neither. program: it and its arguments as a shell takes them, "" where not known. gpu_bytes: of the whole GPU.
    fragmented: where memory need not be in one piece, the request that failed succeeds, and
    so does what follows, as far as it can be told. batch_text: the batch that fits, or why
    none can be told; chosen_text: the smallest set of remedies that fits; "": nothing.
    """

    memory_bytes: int | None
    failed: bool
    untold_because: list[str]
    unseen: Unseen
    needs_least_bytes: int
    needs_most_bytes: int
    batch_argument: str
    batch_recorded: int
    batch: int
    program: str
    gpu_bytes: int | None
    batch_named: bool
    batch_factor: float
    batch_factor_most: float
    batch_text: str
    chosen_text: str
    remedies: list[Remedy]
    chosen_need_bytes: int
    fragmented: bool
    unfragmented_fits: bool


class ExplainedDevice(TypedDict):
    """Why a device's peak is what it is, and what to change; most saving first.

    recorded: its peaks, of each total alone; peak: those of the same run in the model of the
    allocator, with segments where the driver would put them, with which all else is
    compared. start_cached_bytes: cached when the recording began, if the model, which begins
    without this cache, reserves less for it; else 0. failed: a request failed; in the model
    it does not.  findings: of the verdict.
    """

    device: int
    name: str
    exact: bool
    inexact_because: list[str]
    recorded: Totals
    start_cached_bytes: int
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
    findings: list[Finding]


class MeasuredRun(TypedDict):
    """A run on the phantom device. conf: text of PYTORCH_CUDA_ALLOC_CONF, "" with it unset,
    None as it was; batch: None without an argument for it; reserved_peak_bytes: None where
    memory ended it; error: why the program failed otherwise."""

    conf: str | None
    batch: int | None
    fits: bool
    reserved_peak_bytes: int | None
    error: str | None


class Measured(TypedDict):
    """What fits on a GPU with memory_bytes, measured on the phantom device; conf "" and
    batch_argument "": not tried; batch_largest None: none from 1 to batch_given. conf_fits:
    whether conf, of the settings tried the first that fits, or the first, does."""

    memory_bytes: int
    conf: str
    conf_fits: bool | None
    batch_argument: str
    batch_given: int
    batch_largest: int | None
    tried: list[MeasuredRun]


class Explanation(TypedDict):
    """The output of `memlab explain --json`, for the requested memory."""

    memory_bytes: int | None
    devices: list[ExplainedDevice]
    measured: Measured | None


class Tuned(TypedDict):
    """The result of some settings, as text of PYTORCH_CUDA_ALLOC_CONF; None: the
    recorded ones.
    """

    conf: str | None
    reserved_peak_bytes: int
    reserved_peak_range_bytes: list[int]
    allocated_peak_bytes: int
    retries: int
    ooms: int
    driver_calls: int


class TuneDevice(TypedDict):
    """The settings with which one device would have reserved least.  start_cached_bytes: as
    of ExplainedDevice, of base."""

    device: int
    name: str
    events: int
    memory_bytes: int | None
    base: Tuned
    start_cached_bytes: int
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
    """The output of `memlab tune --json`, for the requested memory."""

    memory_bytes: int | None
    devices: list[TuneDevice]
