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


def rows(columns: Columns, count: int) -> list[Row]:
    ids = columns.changes(count)
    starts = [start - 1 for start in columns.changes(count)]
    requested = [
        start + value - 1 if value else None
        for start, value in zip(starts, columns.plain(count))
    ]
    ends = [
        asked + value - 1 if value else None
        for asked, value in zip(requested, columns.plain(count))
    ]
    fields = (
        columns.addresses(count),
        *(columns.plain(count) for _ in range(4)),
    )
    return list(map(Row, ids, starts, requested, ends, *fields))


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


def chunk(blob: bytes, first: int) -> Chunk:
    c = Columns(blob)
    count, carried, fresh = c.plain(3)
    before = c.plain(3)
    carried_rows = rows(c, carried)
    fresh_rows = rows(c, fresh)
    action, row = c.plain(count), c.plain(count)
    time, stack, flags = c.changes(count), c.plain(count), c.plain(count)
    totals = [c.changes(count, value) for value in before]
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
        assert self.head["format"] == 4
        self.devices = [
            Device(self.head, blobs, i) for i in range(len(self.head["devices"]))
        ]
