"""What was live at an instant: the peak, and the account of a whole GPU."""

from __future__ import annotations

from typing import Literal, TypedDict

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
    """Totals and their instant: event is an index into the kept events."""

    time_us: int
    event: int


class Moment(TypedDict):
    """Where the program was; None: not reported."""

    step: int | None
    phase: str | None


class Frame(TypedDict):
    """One frame of a stack."""

    name: str
    filename: str
    line: int


class ModelLine(TypedDict):
    """A line of code; qualname: its function with those around it, where that is known."""

    file: str
    line: int
    function: str
    qualname: str


class ProgramLine(TypedDict):
    """A line of the program; file "" if there is none.  inner: the model's own line, None
    where that is the line itself.  how: by what the line is known.
    """

    file: str
    line: int
    function: str
    inner: ModelLine | None
    module: str
    how: str


class Line(TypedDict):
    """Live bytes of one line of the program; file "" and line 0 if reason says why
    there is none.
    """

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


class InnerLine(TypedDict):
    """What a line made, by the model's own line: the innermost that is neither torch's nor
    Python's own.  qualname: the function with those around it, where that is known."""

    file: str
    line: int
    function: str
    qualname: str
    bytes: int
    blocks: int
    module: str
    by_category: dict[Category, int]


class PeakLine(Line):
    """A line, and its parts by the model's own lines; no parts if that is the line
    itself.
    """

    inner: list[InnerLine]


class Stack(TypedDict):
    """Live bytes of one stack, innermost frame first."""

    frames: list[Frame]
    bytes: int
    blocks: int
    phase: str
    how: str
    reason: str


class ModulePart(TypedDict):
    """Live bytes of one module; module "" if reason says why there is none."""

    module: str
    reason: str
    bytes: int
    blocks: int


class ModuleNode(TypedDict):
    """Live bytes of a module with its submodules, and its own alone.  modules: number
    of repeated modules that "*" in the path stands for.
    """

    module: str
    reason: str
    modules: int
    bytes: int
    blocks: int
    own_bytes: int
    own_blocks: int
    children: list[ModuleNode]


class ModuleRow(TypedDict):
    """A row of the summary of modules.  share: the whole module, its own without
    submodules, or the rest that no other row has.
    """

    module: str
    reason: str
    modules: int
    share: str
    bytes: int
    blocks: int


class SizePart(TypedDict):
    """Live bytes of blocks from least_bytes up to below four times that."""

    least_bytes: int
    bytes: int
    blocks: int


class Overhead(TypedDict):
    """Memory that the allocator held beyond allocated bytes.  fragmentation is 0 to 1;
    free_blocks and segments are counts.
    """

    inactive_bytes: int
    slack_bytes: int
    largest_free_bytes: int
    free_blocks: int
    segments: int
    fragmentation: float


class GpuLines(TypedDict):
    """Signed bytes that sum to the device's used bytes; None: unknown."""

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
    """The same at the sample nearest to the peak."""

    moved_bytes: int
    time_us: int
    after_us: int


class Host(TypedDict):
    """The host's memory; None if torch does not tell."""

    rss_bytes: int | None
    pinned_allocated_bytes: int | None
    pinned_reserved_bytes: int | None


class HostSample(Host):
    """The same at the sample nearest to the peak."""

    time_us: int
    after_us: int


class Ledger(Gpu):
    """The answer of memlab.ledger()."""

    device: int
    host: Host


class Peak(TypedDict):
    """Live memory of one device at its allocated peak."""

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
    by_line: list[PeakLine]
    by_stack: list[Stack]
    by_category: dict[Category, int]
    by_module: list[ModulePart]
    module_tree: list[ModuleNode]
    module_rows: list[ModuleRow]
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
