"""Reads snapshot files: unpacks them, and names the file in every error."""

from __future__ import annotations

import os
import sys
import zlib

from memlab import _core
from memlab._errors import SnapshotError, tell
from memlab._files import download

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from memlab._core import _Path

__all__ = ["is_mlab", "load", "read_recording", "read_stdin", "unread_notes"]

_GZIP = b"\x1f\x8b"
_MLAB = b"\x89MLAB\r\n\x1a"
_CHUNK = 1 << 20
# Snapshots pack to between a tenth and a fiftieth.  A file that unpacks to far more was
# made to fill the memory.
_MAX_RATIO = 200
_MAX_SMALL = 64 << 20
_MAX_BYTES = 16 << 30
_REMEDY = (
    "memlab reads .mlab files, and snapshots of torch.cuda.memory._dump_snapshot and "
    "memlab.dump_snapshot, which may be packed by gzip"
)
# How notes are reported; the command line replaces it.
say = tell


class _Unpacker:
    """The gzip file FILE, unpacked member after member, within limits."""

    def __init__(self, file):
        self.file = file
        self.packed = 0
        self.out = bytearray()

    def _chunk(self):
        chunk = self.file.read(_CHUNK)
        self.packed += len(chunk)
        return chunk

    def _add(self, part):
        self.out += part
        limit = min(max(self.packed * _MAX_RATIO, _MAX_SMALL), _MAX_BYTES)
        if len(self.out) > limit:
            raise SnapshotError(
                f"{self.packed} bytes unpack to more than {limit}, which no snapshot "
                "does; if you trust the file, unpack it with gunzip first"
            )

    def run(self):
        data = self._chunk()
        while data:
            member = zlib.decompressobj(wbits=31)
            while True:
                part = member.decompress(data, _CHUNK)
                self._add(part)
                if member.eof:
                    break
                data = member.unconsumed_tail or self._chunk()
                if not data and not part:
                    raise SnapshotError("the gzip file is incomplete")
            # As in gzip, zeros may follow the last member.
            data = (member.unused_data or self._chunk()).lstrip(b"\0")
        return self.out


def _bytes_of(file):
    """All bytes of the open FILE, unpacked."""
    if file.peek(2)[:2] == _GZIP:
        return _Unpacker(file).run()
    if os.fstat(file.fileno()).st_size > _MAX_BYTES:
        raise SnapshotError(f"the file is larger than {_MAX_BYTES} bytes")
    return file.read()


def _make(file, make):
    """MAKE(the bytes of the open FILE)."""
    try:
        data = _bytes_of(file)
        if not data:
            raise SnapshotError("the file is empty")
        if data.startswith(_MLAB):
            raise SnapshotError("a .mlab file packed by gzip: unpack it with gunzip")
        return make(data)
    except zlib.error as error:
        raise SnapshotError(f"the gzip file is damaged ({error})") from None


def _read(path, name, make):
    """MAKE(the bytes of the file at PATH), with errors that name it NAME."""
    with open(path, "rb") as file:
        try:
            return _make(file, make)
        except SnapshotError as error:
            text = str(error)
    raise SnapshotError(f"{name}: {text}; {_REMEDY}")


def is_mlab(path: _Path) -> bool:
    """Whether the file at PATH begins as a .mlab file.  Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(_MLAB)) == _MLAB


def _read_mlab(path, name):
    try:
        return _core.Recording.from_file(path)
    except SnapshotError as error:
        raise SnapshotError(f"{name}: {error}") from None


def load(path: _Path) -> dict[str, Any] | list[dict[str, Any]]:
    """The snapshot in the file at PATH, equal to pickle.load's result, but safe.

    For torch's own dict, as torch's tools take it; for answers, use memlab.open().

    PATH is a str, bytes or os.PathLike: a pickle by torch or memlab, plain or packed by
    gzip, or a .mlab file, or a URI of one.  The result is the dict of
    torch.cuda.memory._snapshot(), or the list of torch.cuda.memory_snapshot(): sizes in
    bytes, times in microseconds. Nothing in the file is imported or called.

    Raises SnapshotError for a file that is damaged or holds more than plain data, OSError
    for one that cannot be read, and memlab.Error for a URI whose file cannot be got.
    """
    with download.here(path) as (file, name):
        if is_mlab(file):
            return _read_mlab(file, name).to_dict()
        return _read(file, name, _core.load)


def unread_notes(recording):
    """A sentence about the values of RECORDING's file that could not be read, if any.
    """
    kinds = recording.unread
    count = sum(kinds.values())
    if count:
        said = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
        values = "value that" if count == 1 else "values that"
        newer = "; a newer memlab may read memlab.newer" if "memlab.newer" in kinds else ""
        yield (
            f"The file has {count} {values} could not be read, taken as unknown: "
            f"{said}{newer}."
        )


def _told(recording, name):
    for note in unread_notes(recording):
        say(f"{name}: {note}")
    return recording


def read_recording(path: _Path, quiet: bool = False) -> _core.Recording:
    """The Recording in the file at PATH; takes and raises the same as load.

    Reports parts that could not be read, unless QUIET, for callers that show them.
    """
    with download.here(path) as (file, name):
        if is_mlab(file):
            return _read_mlab(file, name)
        recording = _read(file, name, _core.Recording.from_bytes)
    return recording if quiet else _told(recording, name)


def read_stdin() -> _core.Recording:
    """The Recording in the snapshot pickle from stdin; raises the same as load."""
    try:
        return _told(_make(sys.stdin.buffer, _core.Recording.from_bytes), "stdin")
    except SnapshotError as error:
        text = str(error)
    raise SnapshotError(
        f"stdin: {text}; it takes snapshot pickles, plain or packed by gzip: give a "
        ".mlab file by its name"
    )
