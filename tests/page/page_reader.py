"""Page data back into lists: an independent reader of what docs/FORMAT.md describes."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

NEVER = None


class Columns:
    """Numbers of a blob, from the front."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.at = 0

    def one(self) -> int:
        value = shift = 0
        while True:
            byte = self.blob[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def plain(self, count: int) -> list[int]:
        return [self.one() for _ in range(count)]

    def changes(self, count: int, before: int = 0) -> list[int]:
        values = []
        for zigzag in self.plain(count):
            before += -(zigzag + 1) // 2 if zigzag % 2 else zigzag // 2
            values.append(before)
        return values

    def addresses(self, count: int) -> list[int]:
        high = self.changes(count)
        return [h << 32 | low for h, low in zip(high, self.plain(count))]

    def end(self) -> None:
        assert self.at == len(self.blob), "bytes are left"


@dataclass(frozen=True)
class Row:
    """An allocation; events by index, -1 before the recording, None never."""

    id: int
    start: int
    requested: int | None
    end: int | None
    addr: int
    bytes: int
    size: int
    kind: int
    ordinal: int

    def allocated(self, event: int) -> bool:
        return self.start <= event and (
            self.requested is None or event < self.requested
        )

    def active(self, event: int) -> bool:
        return self.start <= event and (self.end is None or event < self.end)


def rows(columns: Columns, count: int, first: int | None = None) -> list[Row]:
    """COUNT rows; FIRST: the number of the first, of rows that follow each other."""
    ids = columns.changes(count) if first is None else range(first, first + count)
    starts = [start - 1 for start in columns.changes(count)]
    requested = [
        start + value - 1 if value else None
        for start, value in zip(starts, columns.plain(count))
    ]
    ends = [
        asked + value - 1 if value else None
        for asked, value in zip(requested, columns.plain(count))
    ]
    blocks = columns.plain(count)
    sizes = [columns.changes(1, block)[0] for block in blocks]
    kinds = columns.plain(count)
    back = columns.plain(count) if first is not None else [0] * count
    written = back.count(0)
    places = iter(list(zip(columns.addresses(written), columns.plain(written))))
    addresses: list[tuple[int, int]] = []
    for i, rows_back in enumerate(back):
        if rows_back:
            addr, ordinal = addresses[i - rows_back]
            addresses.append((addr, ordinal + 1))
        else:
            addresses.append(next(places))
    return [
        Row(*fields, addr, block, size, kind, ordinal)
        for *fields, (addr, ordinal), block, size, kind in zip(
            ids, starts, requested, ends, addresses, blocks, sizes, kinds
        )
    ]


@dataclass
class Chunk:
    first: int
    count: int
    carried: list[Row]
    fresh: list[Row]
    before: list[int]
    action: list[int]
    row: list[int]
    time: list[int]
    stack: list[int]
    flags: list[int]
    totals: list[list[int]]
    bare: list[tuple[int, int, int, int]]  # event, address, size, stream index


def event_rows(c: Columns, places: list[Row], first: int, count: int) -> list[int]:
    """Of each event the place of its row, plus 1; 0: none."""
    found = [0] * count
    for place, row in enumerate(places, 1):
        for event in (row.start, row.requested, row.end):
            if event is not None and first <= event < first + count:
                found[event - first] = place
    others = c.one()
    for event, place in zip(c.changes(others), c.plain(others)):
        found[event] = place
    return found


def bytes_after(spans: list[tuple], first: int, count: int) -> list[int]:
    """The sum of the bytes of SPANS that hold each event, from FIRST on."""
    changes = [0] * (count + 1)
    for size, start, end in spans:
        begun = max(start - first, 0)
        over = count if end is None else min(max(end - first, 0), count)
        changes[min(begun, over)] += size
        changes[over] -= size
    return list(itertools.accumulate(changes[:count]))


def reserved_after(c: Columns, before: int, allocated: list[int]) -> list[int]:
    changes = c.one()
    if changes == 0:
        return allocated
    at = dict(zip(c.changes(changes - 1), c.changes(changes - 1, before)))
    found = []
    for event in range(len(allocated)):
        before = at.get(event, before)
        found.append(before)
    return found


def chunk(blob: bytes, first: int) -> Chunk:
    c = Columns(blob)
    count, carried, fresh, born = c.plain(4)
    before = c.plain(3)
    carried_rows = rows(c, carried)
    fresh_rows = rows(c, fresh, born)
    both = [*carried_rows, *fresh_rows]
    action = c.plain(count)
    time, stack, flags = c.changes(count), c.plain(count), c.plain(count)
    row = event_rows(c, both, first, count)
    asked = [(r.bytes, r.start, r.requested) for r in both]
    ended = [(r.bytes, r.start, r.end) for r in both]
    allocated = bytes_after(asked, first, count)
    active = bytes_after(ended, first, count)
    totals = [allocated, active, reserved_after(c, before[2], allocated)]
    others = [first + i for i in range(count) if row[i] == 0]
    bare = zip(
        others, c.addresses(len(others)), c.plain(len(others)), c.plain(len(others))
    )
    read = Chunk(first, count, carried_rows, fresh_rows, before, action, row, time, stack,
                 flags, totals, list(bare))  # fmt: skip
    c.end()
    return read


@dataclass
class Segment:
    start: int
    end: int | None
    addr: int
    bytes: int
    stream: int
    stack: int
    flags: int


SCHEMES = ("category", "module", "line", "size")


class Device:
    """What the blobs say of one device."""

    def __init__(
        self, head: dict, blobs: list[bytes], number: int, *, chunks: bool = True
    ) -> None:
        self.head = device = head["devices"][number]
        self.events = device["events"]
        size = device["chunks"]["events"]
        self.chunks = [
            chunk(blobs[n], i * size)
            for i, n in enumerate(device["chunks"]["blobs"])
            if chunks
        ]
        self.rows: list[Row] = []
        for part in self.chunks:
            new = [*(part.carried if part.first == 0 else ()), *part.fresh]
            assert [row.id for row in new] == list(
                range(len(self.rows), len(self.rows) + len(new))
            )
            self.rows += new
        self.levels = [
            list(itertools.chain(*(self.columns(blobs[n]) for n in level["blobs"])))
            for level in device["levels"]
        ]
        self.bands = [
            [self.band(blobs[n]) for n in level["blobs"]] for level in device["bands"]
        ]
        self.segments = self.read_segments(blobs[device["segments"]])
        self.integrals = list(
            itertools.chain(*(self.integral(blobs[n]) for n in device["integrals"]))
        )

    def columns(self, blob: bytes) -> list[dict]:
        c = Columns(blob)
        count = c.one()
        names = {"time": c.changes(count), "peak": c.plain(count)}
        names |= {k: c.changes(count) for k in ("allocated", "active", "reserved")}
        names["top"] = c.plain(count)
        for scheme in SCHEMES:
            groups = [c.changes(count) for _ in self.head["groups"][scheme]]
            names[scheme] = list(zip(*groups)) if groups else [()] * count
        c.end()
        return [
            {name: values[i] for name, values in names.items()} for i in range(count)
        ]

    def band(self, blob: bytes) -> list[Row]:
        c = Columns(blob)
        read = rows(c, c.one())
        c.end()
        return read

    def read_segments(self, blob: bytes) -> list[Segment]:
        c = Columns(blob)
        count = c.one()
        starts = [start - 1 for start in c.changes(count)]
        ends = [
            start + value - 1 if value else None
            for start, value in zip(starts, c.plain(count))
        ]
        fields = c.addresses(count), *(c.plain(count) for _ in range(4))
        c.end()
        return list(map(Segment, starts, ends, *fields))

    def integral(self, blob: bytes) -> list[dict[int, tuple[int, int]]]:
        c = Columns(blob)
        parts = []
        while c.at < len(blob):
            count = c.one()
            kinds, allocs = c.changes(count), c.plain(count)
            parts.append(dict(zip(kinds, zip(allocs, c.plain(count)))))
        return parts

    def group(self, scheme: str, row: Row) -> int:
        groups = self.head["groups"][scheme]
        if scheme == "size":
            return max(i for i, least in enumerate(groups) if least <= row.bytes)
        return self.head["group_of_kind"][scheme][row.kind]


class Page:
    def __init__(self, data: tuple[bytes, list[bytes]]) -> None:
        text, blobs = data
        self.head = json.loads(text)
        assert self.head["format"] == 5
        self.devices = [
            Device(self.head, blobs, i) for i in range(len(self.head["devices"]))
        ]
