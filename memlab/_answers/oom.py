"""Why a request for memory failed."""

from typing import TypedDict

from memlab._answers.peaks import Category, Frame, PeakLine, Totals


class Place(TypedDict):
    """A line of the program."""

    file: str
    line: int
    function: str


class Cause(Place):
    """The line that allocated or requested."""

    caller: Place | None
    how: str
    module: str
    phase: str
    reason: str


class OomRequest(Cause):
    """The failed request; pool None: not recorded."""

    bytes: int
    driver_bytes: int
    stream: int
    pool: list[int] | None
    small_pool: bool
    frames: list[Frame]


class OomDevice(TypedDict):
    """The device at that time; None: not recorded."""

    free_bytes: int
    total_bytes: int | None
    allowed_bytes: int | None
    headroom_bytes: int
    outside_bytes: int | None


class OomPart(TypedDict):
    """Reserved, unused bytes."""

    bytes: int
    pieces: int
    largest_bytes: int


class OomUnused(TypedDict):
    """Unused bytes by why they served or did not serve the request."""

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
    """The range that is long enough and has the fewest bytes in use."""

    bytes: int
    address: int
    used_bytes: int
    used_blocks: int
    blocks: list[OomBlock]


class OomGrowing(Place):
    """A line whose memory grows from step to step."""

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
    """What to try; the kind "one_line" names its line."""

    kind: str
    bytes: int


class Oom(TypedDict):
    """Why a device's last request that ran out of memory failed."""

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
    by_line: list[PeakLine]
    by_category: dict[Category, int]
    unknown_because: dict[str, int]
    mismatches: int
    uncertain_bytes: int
