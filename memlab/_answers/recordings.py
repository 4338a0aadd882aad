"""Facts about a recording, its file and the recorder."""

from typing import TypedDict


class Note(TypedDict):
    """Something that happened beside memory events; device and rank -1: none.  The kind
    decides the meaning of values; None: unknown.
    """

    time_ns: int
    kind: str
    name: str
    device: int
    rank: int
    thread: int
    values: list[int | None]


class Counts(TypedDict):
    """How much a recording holds of a device: counts, not bytes."""

    events: int
    segments: int
    blocks: int
    overwritten_events: int
    dropped_events: int
    lost_stacks: int
    lost_names: int


class Gap(TypedDict):
    """Missing events of a device, after that many of its events."""

    device: int
    position: int
    dropped: int
    lost: int


class File(TypedDict):
    """A .mlab file's facts about its making; errno is the system's, 0: no error; bytes
    is its length.  gone_events and gone_steps were in the first part of the recording,
    which the file dropped; gone_until_us is when that ended.
    """

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
    gone_events: int
    gone_steps: int
    gone_until_us: int


class News(TypedDict):
    """Result of a look at a followed file: whether there is more to read; whether the
    file is shorter than before; its bytes and those read; and the events so far, of
    which gone_events were dropped for newer ones.
    """

    more: bool
    cut: bool
    bytes: int
    read_bytes: int
    events: int
    gone_events: int


class History(TypedDict):
    """The most allocated bytes in each of several spans of equal time."""

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


class _BackendTorch(TypedDict, total=False):
    torch: str | None


class Backend(_BackendTorch):
    """Whether a source of events can be recorded, and how or why not.  torch: its
    version, only for "cuda" and "cpu".
    """

    available: bool
    reason: str
