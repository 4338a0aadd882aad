"""The shapes of what memlab answers, for type checkers and readers.

docs/REPORT.md says what each key means.  Keys that end in _bytes are bytes, _us
microseconds, _ns nanoseconds; a *_us or *_ns without "after" is unix time.  Nothing
imports this while a program runs.
"""

from typing import Literal, TypedDict

from memlab._objects.holders import Holder

Category = Literal[
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "activation",
    "temporary",
    "input",
    "other",
    "workspace",
    "communication",
    "before_recording",
    "unknown",
]


class Totals(TypedDict):
    """Bytes of one device at one instant."""

    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    reserved_bytes: int


class Instant(Totals):
    """Totals, and when: event is an index into the events kept."""

    time_us: int
    event: int


class Moment(TypedDict):
    """Where the program was; None for what it did not tell."""

    step: int | None
    phase: str | None


class Frame(TypedDict):
    """One frame of a stack."""

    name: str
    filename: str
    line: int


class Line(TypedDict):
    """Live bytes of one line of the program; file "" and line 0 where reason says why
    there is none."""

    file: str
    line: int
    until_line: int
    function: str
    bytes: int
    blocks: int
    phase: str
    backward: bool
    how: str
    module: str
    by_category: dict[Category, int]
    reason: str


class Stack(TypedDict):
    """Live bytes of one stack, innermost frame first."""

    frames: list[Frame]
    bytes: int
    blocks: int
    phase: str
    how: str
    reason: str


class ModulePart(TypedDict):
    """Live bytes of one module; module "" where reason says why there is none."""

    module: str
    reason: str
    bytes: int
    blocks: int


class SizePart(TypedDict):
    """Live bytes of blocks of least_bytes up to below four times that."""

    least_bytes: int
    bytes: int
    blocks: int


class Overhead(TypedDict):
    """What the allocator held beyond what was allocated; fragmentation from 0 to 1,
    free_blocks and segments are numbers of them."""

    inactive_bytes: int
    slack_bytes: int
    largest_free_bytes: int
    free_blocks: int
    segments: int
    fragmentation: float


class GpuLines(TypedDict):
    """Signed bytes that add up to what the device says is used; None: not told."""

    torch_allocated_bytes: int | None
    torch_pending_free_bytes: int | None
    torch_cached_bytes: int | None
    outside_at_start_bytes: int | None
    outside_first_step_bytes: int | None
    outside_later_bytes: int | None
    other_processes_bytes: int | None
    driver_bytes: int | None
    unknown_bytes: int | None


class Gpu(TypedDict):
    """The account of a whole GPU."""

    used_bytes: int
    total_bytes: int | None
    driver_reserve_bytes: int | None
    lines: GpuLines


class GpuSample(Gpu):
    """The same of the sample nearest to the peak."""

    moved_bytes: int
    time_us: int
    after_us: int


class Host(TypedDict):
    """The host's memory; None where torch does not tell."""

    rss_bytes: int | None
    pinned_allocated_bytes: int | None
    pinned_reserved_bytes: int | None


class HostSample(Host):
    """The same of the sample nearest to the peak."""

    time_us: int
    after_us: int


class Ledger(Gpu):
    """What memlab.ledger() answers."""

    device: int
    host: Host


class Peak(TypedDict):
    """What was live on one device when its allocated bytes were at their peak."""

    device: int
    events: int
    overwritten_events: int
    dropped_events: int
    lost_stacks: int
    lost_names: int
    peak: Instant
    moment: Moment
    whole_peak: Totals
    peak_before_window: bool
    by_line: list[Line]
    by_stack: list[Stack]
    by_category: dict[Category, int]
    by_module: list[ModulePart]
    by_size: list[SizePart]
    outside_modules_bytes: int
    unknown_module_bytes: int
    by_phase: dict[str, int]
    by_how: dict[str, int]
    unknown_because: dict[str, int]
    inexact_category_bytes: int
    step: int
    unattributed_bytes: int
    overhead: Overhead
    gpu: GpuSample | None
    gpu_reason: str
    host: HostSample | None
    uncertain_bytes: int
    mismatches: int


class UnheldRow(Line):
    """Memory of one line that no known holder keeps.

    keeper: "" for autograd or other C++ code; else "work space of a library" (by its size,
    as in by_category), "pool of a CUDA graph" or "memory pool", whose id is pool.
    """

    keeper: str
    pool: list[int]


class Unheld(TypedDict):
    """What is allocated on one device, held by whom, and the rest of what is reserved.

    held_bytes + unheld_bytes = allocated_bytes, and with awaiting_free_bytes and
    cached_bytes reserved_bytes.  Of held_bytes claims cover claimed_bytes, all but
    slack_bytes.  outside_bytes: claimed, but in no block of this allocator.
    """

    device: int
    recorded: bool
    """Whether a recording was under way, which says where blocks come from."""
    changed: bool
    """Memory changed while it was read: figures are of moments close to each other."""
    reserved_bytes: int
    allocated_bytes: int
    awaiting_free_bytes: int
    cached_bytes: int
    split_remainder_bytes: int
    held_bytes: int
    held_blocks: int
    claimed_bytes: int
    slack_bytes: int
    unheld_bytes: int
    unheld_blocks: int
    outside_bytes: int
    outside_claims: int
    rows: list[UnheldRow]


class _ReporterHolders(TypedDict, total=False):
    holders: list[Holder] | None


class ReporterRow(_ReporterHolders):
    """One tensor, or a part of one: its gradient, the values of a sparse one.

    name is as in "weight.grad"; sizes its shape; elements their product.  storage_bytes
    are those of its whole storage, used_bytes the same rounded up to 512, or 0 where
    shared_with names the row that has them already.  holders, only where they were looked
    for, is who holds the tensor, nearest first; None of rows that say so by their name,
    that use no bytes of their own, or whose tensor has gone meanwhile.
    """

    name: str
    sizes: tuple[int, ...]
    elements: int
    used_bytes: int
    storage_bytes: int
    shared_with: str | None


class ReporterDevice(TypedDict):
    """The tensors on one device, and the sums of their rows.

    unheld: of GPUs what else is in torch's allocator, None of others.  To the byte,

        used_bytes - unheld["outside_bytes"] + unheld["slack_bytes"]
            + unheld["unheld_bytes"] = unheld["allocated_bytes"]
    """

    device: str
    elements: int
    used_bytes: int
    rows: list[ReporterRow]
    unheld: Unheld | None


class Leak(TypedDict):
    """A line that left memory behind in each of the last steps, all of which lives.

    Of the line as in Line; bytes and blocks are those of these steps, which are steps in a
    row, and bytes_per_step is what the middle one of them left.
    """

    file: str
    line: int
    until_line: int
    function: str
    bytes: int
    blocks: int
    bytes_per_step: int
    steps: int
    device: int
    phase: str
    backward: bool
    how: str
    module: str
    reason: str


class LineFigures(TypedDict):
    """What memory did while one line ran: bytes, but for line and allocations."""

    line: int
    at_peak_bytes: int
    backward_bytes: int
    peak_bytes: int
    allocated_bytes: int
    left_bytes: int
    allocations: int


class FunctionLines(TypedDict):
    """Those of the functions of one name in one file; user: the file is no package's."""

    file: str
    function: str
    user: bool
    lines: list[LineFigures]


class Lines(TypedDict):
    """Those of all lines of a recording's stacks."""

    start_time_us: int
    functions: list[FunctionLines]


class TableLine(LineFigures):
    """A line as tables of functions have it; code None: its text is not known."""

    code: str | None


class LineTable(TypedDict):
    """The lines of one function; source is "read", "newer", "differs", "missing" or
    "absent"."""

    file: str
    function: str
    first_line: int
    last_line: int
    source: str
    own_bytes: int
    lines: list[TableLine]


class Place(TypedDict):
    """A line of the program."""

    file: str
    line: int
    function: str


class Cause(Place):
    """Who allocated, or asked to."""

    caller: Place | None
    how: str
    module: str
    phase: str
    reason: str


class OomRequest(Cause):
    """What could not be had; pool None: not recorded."""

    bytes: int
    driver_bytes: int
    stream: int
    pool: list[int] | None
    small_pool: bool
    frames: list[Frame]


class OomDevice(TypedDict):
    """The device then; None: not recorded."""

    free_bytes: int
    total_bytes: int | None
    allowed_bytes: int | None
    headroom_bytes: int
    outside_bytes: int | None


class OomPart(TypedDict):
    """Reserved bytes that nothing used."""

    bytes: int
    pieces: int
    largest_bytes: int


class OomUnused(TypedDict):
    """These by why they served or did not."""

    eligible: OomPart
    other_pool: OomPart
    other_size: OomPart
    other_stream: OomPart
    oversize: OomPart


class OomBlock(Cause):
    """A block in use; event -1: from before the recording."""

    bytes: int
    address: int
    event: int
    pending_free: bool
    category: str


class OomHole(TypedDict):
    """A free block that could serve; None: the segment's edge."""

    bytes: int
    address: int
    segment_bytes: int
    before: OomBlock | None
    after: OomBlock | None


class OomFit(TypedDict):
    """The stretch that is long enough and has the fewest bytes in use."""

    bytes: int
    address: int
    used_bytes: int
    used_blocks: int
    blocks: list[OomBlock]


class OomGrowing(Place):
    """A line that holds more from step to step."""

    before_bytes: int
    after_bytes: int


class OomGrowth(TypedDict):
    """How the lowest allocated bytes of each step rose."""

    steps: int
    marked_steps: bool
    first_bytes: int
    last_bytes: int
    by_line: list[OomGrowing]


class _AdvicePlace(TypedDict, total=False):
    file: str
    line: int
    function: str
    phase: str
    reason: str


class OomAdvice(_AdvicePlace):
    """What to try; the kind one_line names its line."""

    kind: str
    bytes: int


class Oom(TypedDict):
    """Why the last request of a device that ran out of memory failed."""

    device: int
    event: int
    number: int
    count: int
    time_us: int
    verdict: str
    request: OomRequest
    on_device: OomDevice
    at: Totals
    unused: OomUnused
    pending_bytes: int
    released_bytes: int
    expandable_segments: bool
    holes: list[OomHole]
    nearest_fit: OomFit | None
    growth: OomGrowth | None
    advice: list[OomAdvice]
    by_line: list[Line]
    by_category: dict[Category, int]
    unknown_because: dict[str, int]
    mismatches: int
    uncertain_bytes: int


class Note(TypedDict):
    """What happened beside memory events; device and rank -1: of none.  What values are, None for
    one that is not known, is the kind's."""

    time_ns: int
    kind: str
    name: str
    device: int
    rank: int
    thread: int
    values: list[int | None]


class Counts(TypedDict):
    """How much of a device a recording holds: numbers, not bytes."""

    events: int
    segments: int
    blocks: int
    overwritten_events: int
    dropped_events: int
    lost_stacks: int
    lost_names: int


class Gap(TypedDict):
    """Where events of a device are missing, after so many of it."""

    device: int
    position: int
    dropped: int
    lost: int


class File(TypedDict):
    """What a .mlab file tells of its making; errno is the system's, 0: no error.  bytes is
    its length."""

    state: str
    stopped: str
    errno: int
    pid: int
    host: str
    gaps: list[Gap]
    start_time_us: int
    bytes: int
    event_bytes: int
    definition_bytes: int
    control_bytes: int
    damaged_chunks: int
    lost_records: int
    unread_records: int
    unknown_starts: int
    repeated_starts: int
    native_frames: int


class News(TypedDict):
    """What a look at a file that is followed found: whether it has more than was read now,
    whether it is shorter than what was read before, its bytes and those looked at, and the
    events so far, of which gone_events made room for newer ones."""

    more: bool
    cut: bool
    bytes: int
    read_bytes: int
    events: int
    gone_events: int


class History(TypedDict):
    """The most allocated bytes in each of some spans of equal time, from a start on."""

    start_time_us: int
    column_us: float
    allocated_bytes: list[int]


class Stats(TypedDict):
    """The recorder's own counters of one device."""

    events: int
    dropped_events: int
    lost_stacks: int
    lost_names: int
    inconsistencies: int
    lane_events: int
    lane_bytes: int
    allocated_bytes: int
    active_bytes: int
    requested_bytes: int
    reserved_bytes: int
    allocated_bytes_peak: int
    active_bytes_peak: int
    requested_bytes_peak: int
    reserved_bytes_peak: int


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


class DeviceReport(Peak):
    """One device in a report."""

    name: str
    lines: list[LineTable]


class Report(TypedDict):
    """What `memlab report --json` prints; file is the path that was read, at the instant
    as memlab report --at names it."""

    file: str | None
    recording: File | None
    unread: dict[str, int]
    source: str
    at: str
    ranks: list[Rank]
    devices: list[DeviceReport]
    oom: list[Oom]


class _BackendTorch(TypedDict, total=False):
    torch: str | None


class Backend(_BackendTorch):
    """Whether a source of events can be recorded, and how or why not; torch, of "cuda"
    and "cpu" only, is its version."""

    available: bool
    reason: str


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
    devices: list[ReplayDevice]


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
    reserved_peak_range_bytes: the least and the most over the orders of addresses that were
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
    by_line: list[Line]


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
    uses_known: bool
    failed: bool
    tried: int


class Explanation(TypedDict):
    """What `memlab explain --json` prints, for the memory that was asked about."""

    memory_bytes: int | None
    devices: list[ExplainedDevice]


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
