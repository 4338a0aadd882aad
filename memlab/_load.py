"""Reading snapshot files: unpacking them, and naming the file in every error."""

from __future__ import annotations

import os
import zlib

from memlab import _core
from memlab._errors import SnapshotError

__all__ = ["load", "read_recording"]

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
# A snapshot packs to about a fifteenth and memory for it grows with its size, so what
# unpacks to far more than that was made to fill the memory.
_MAX_RATIO = 200
_MAX_SMALL = 64 << 20
_MAX_BYTES = 16 << 30
_REMEDY = (
    "memlab reads what torch.cuda.memory._dump_snapshot and memlab.dump_snapshot write, "
    "plain or packed by gzip"
)


def _unpack(data):
    """The bytes in the gzip file DATA, member after member."""
    limit = min(max(len(data) * _MAX_RATIO, _MAX_SMALL), _MAX_BYTES)
    out = bytearray()
    while data:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            part = member.decompress(data, _CHUNK)
            data = member.unconsumed_tail
            if not part and not data and not member.eof:
                raise SnapshotError("the gzip file ends early: it is incomplete")
            out += part
            if len(out) > limit:
                raise SnapshotError(
                    f"refused: {limit} bytes unpacked and no end: unpack it yourself "
                    "if you trust it"
                )
        # Padding of zeros after the last member is allowed, as gzip has it.
        data = member.unused_data.lstrip(b"\0")
    return out


def _read(path, make):
    """MAKE of the bytes of the file at PATH, with errors that name the file."""
    name = os.fsdecode(path)
    with open(path, "rb") as file:
        data = file.read(_MAX_BYTES + 1)
    try:
        if len(data) > _MAX_BYTES:
            raise SnapshotError(f"larger than {_MAX_BYTES} bytes")
        if data[:2] == _GZIP:
            data = _unpack(data)
        if not data:
            raise SnapshotError("the file is empty")
        return make(data)
    except zlib.error as error:
        raise SnapshotError(f"{name}: a damaged gzip file ({error})") from None
    except SnapshotError as error:
        raise SnapshotError(f"{name}: {error}. {_REMEDY}.") from None


def load(path):
    """The snapshot in the file at PATH, as pickle.load would give it, but safely.

    PATH is a str, bytes or os.PathLike of a pickle by torch or memlab, plain or packed
    by gzip. The result is the dict of torch.cuda.memory._snapshot(), or the list of
    torch.cuda.memory_snapshot(): sizes in bytes, times in microseconds. Nothing in the
    file is imported or called, whatever it asks for.

    Raises SnapshotError for a file that is damaged or holds more than plain data, and
    OSError for one that cannot be read.
    """
    return _read(path, _core.load)


def read_recording(path):
    """The Recording in the file at PATH; takes and raises what load does."""
    return _read(path, _core.Recording.from_bytes)
