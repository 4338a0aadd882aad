"""Recordings of several ranks: which file is which rank's, and all of them as one."""

from __future__ import annotations

import glob
import os
import re

from memlab import _core
from memlab._errors import Error
from memlab._files import download, load, store
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Protocol, TypeAlias

    from memlab._core import Recording, _Path

    class _Recorded(Protocol):
        """memlab.Recording and memlab.MemorySnapshot."""

        @property
        def path(self) -> str | None: ...
        def data(self) -> Recording: ...

    # What functions take for a recording.
    AnyRecording: TypeAlias = _Recorded | Recording | _Path

__all__ = [
    "UNNAMED",
    "Seen",
    "file_of",
    "files",
    "merge",
    "name_of",
    "rank_in",
    "ranks_of",
    "read",
    "read_all",
    "recorded",
]

# A recording that is of no file, in messages.
UNNAMED = "the recording"

# In a folder the first of these that a rank has is taken: a .mlab file has every event.
_ENDINGS = (".mlab", ".pickle", ".pickle.gz")
_RANK = re.compile(r"rank[_-]?(\d{1,9})(?!\d)")


def rank_in(name):
    """The rank that a file's NAME says, as in rank3.mlab; -1: none."""
    found = _RANK.findall(name)
    return int(found[-1]) if found else -1


def _in_folder(folder, names):
    """The recordings of the ranks in FOLDER, one a rank, which has files of NAMES.

    A name that is no more than the rank's comes first; else there is one, as trainers'
    callbacks leave it.  The same name with several endings is one recording.
    """
    stems = {}
    for name in sorted(names):
        ending = next((e for e in _ENDINGS if name.endswith(e)), None)
        if ending is not None and not name.startswith("."):
            stems.setdefault(name[: -len(ending)], set()).add(ending)
    # What other ranks' names add "_rank1" to is rank 0's, as names.apart() has it.
    first = {stem.rpartition("_rank")[0] for stem in stems if re.search(r"_rank\d+$", stem)}
    found = {}
    for stem, endings in stems.items():
        rank = 0 if stem in first else rank_in(stem)
        if rank >= 0:
            found.setdefault(rank, {})[stem] = endings
    if not found:
        raise Error(
            f"{folder}: no recording of a rank here (a name such as rank0.mlab, rank0.pickle "
            "or rank0.4.memory_snapshot.pickle): name the files themselves"
        )
    return [
        os.path.join(folder, _one_of(folder, rank, found[rank])) for rank in sorted(found)
    ]


def _one_of(folder, rank, stems):
    """The name of RANK's recording among STEMS, each with its endings."""
    named = [stem for stem in stems if re.fullmatch(r"rank\d+", stem)] or list(stems)
    if len(named) > 1:
        raise Error(
            f"{folder}: rank {rank} has {len(named)} recordings, {named[0]} and {named[1]} "
            "among them: name the files themselves, one a rank"
        )
    return named[0] + next(e for e in _ENDINGS if e in stems[named[0]])


def _names_in(path):
    """The names of the files in the folder PATH; None if it is a file."""
    if download.is_uri(path):
        return None if path.endswith(_ENDINGS) else download.names_in(path)
    return os.listdir(path) if os.path.isdir(path) else None


def _matching(path):
    """The files that PATH, with * or ?, matches; None: it is a file's name."""
    if not re.search(r"[*?]", path) or os.path.exists(path):
        return None
    found = download.matching(path) if download.is_uri(path) else sorted(glob.glob(path))
    if not found:
        raise Error(f"{store.shown(path)}: no file matches")
    return found


def files(arguments: Iterable[_Path]) -> Iterator[str]:
    """The files of ARGUMENTS, paths or URIs: of a folder its ranks', of a name with * or ?
    those that match.  Raises memlab.Error where there is none.
    """
    for path in arguments:
        path = os.fsdecode(path)
        found = _matching(path)
        if found is not None:
            yield from found
            continue
        names = _names_in(path)
        if names is None:
            yield path
        else:
            yield from _in_folder(path, names)


def file_of(paths: Sequence[str], rank: int) -> str:
    """The one of PATHS whose name tells that it is RANK's.  Raises memlab.Error."""
    found = {rank_in(os.path.basename(name_of(path))): path for path in paths}
    if rank not in found:
        known = wording.numbers(sorted(number for number in found if number >= 0))
        raise Error(f"rank {rank} has no recording here; known by their names: {known or 'none'}")
    return found[rank]


class Seen:
    """Which file each rank came from: two of one rank are not of one run."""

    def __init__(self):
        self.files = {}

    def check(self, rank, path):
        if rank in self.files:
            raise Error(
                f"rank {rank} is in {self.files[rank]} and in {path}: merge one file a "
                "rank, of one run"
            )
        self.files[rank] = path


def _each(paths):
    """(recording, file, rank) of each of PATHS, as the core takes them."""
    seen = Seen()
    for path in paths:
        recording = load.read_recording(path)
        name = name_of(path)
        named = rank_in(os.path.basename(name))
        known = [r["rank"] for r in recording.ranks()] or [None]
        for rank in known:
            rank = named if rank is None and len(known) == 1 else rank
            if rank is not None and rank >= 0:
                seen.check(rank, name)
        # Names of files may be any bytes; the core takes texts.
        yield recording, name.encode("utf-8", "backslashreplace").decode(), named
        del recording  # or it would be there beside the next


def merge(paths: Sequence[_Path]) -> Recording:
    """One recording of the files of several ranks, or of the folders that hold them.

    PATHS are those of .mlab files, snapshot pickles, or folders in which each rank has one
    whose name tells its number, as rank0.mlab does; or URIs of these.  Every device of
    every rank becomes a device, clocks are aligned; docs/TRAINERS.md says how.  One file is
    read at a time. Raises memlab.Error for two files of one rank, SnapshotError for what is no recording,
    OSError, ValueError for recordings of different sources.
    """
    return _core.merge(_each(list(files(paths))))


def ranks_of(recording: Recording) -> list[Any]:
    """The ranks of RECORDING; of one that says nothing of its process, as torch's own
    snapshots, one without a number that has all devices.
    """
    devices = [{"device": i, "number": i} for i in range(recording.device_count)]
    alone = {"rank": None, "world_size": None, "host": "", "state": "", "devices": devices}
    return recording.ranks() or [alone]


def name_of(path: _Path) -> str:
    """PATH for messages: of a URI, without what may be secret."""
    return store.shown(os.fsdecode(path)) if download.is_uri(path) else os.fsdecode(path)


def recorded(recording: AnyRecording, quiet: bool = False) -> tuple[Recording, str]:
    """RECORDING of the core, read if it is a path, and its name for messages.  Raises what
    read() does, and the errors of MemorySnapshot.data().
    """
    if isinstance(recording, _core.Recording):
        return recording, UNNAMED
    if isinstance(recording, (str, bytes, os.PathLike)):
        return read(recording, quiet), name_of(recording)
    if not hasattr(recording, "data"):
        raise TypeError(
            f"not a recording: {recording!r}; give a path, what memlab.open() gives, or a "
            "MemorySnapshot"
        )
    return recording.data(), recording.path or UNNAMED


def read_all(paths: Sequence[str], quiet: bool = False) -> Recording:
    """The recording in the file at the one of PATHS, or what merge() makes of several.

    Raises what merge() does.  What could not be read of a single file is told, unless
    QUIET, for callers that show it.
    """
    if len(paths) == 1:
        return load.read_recording(paths[0], quiet)
    return _core.merge(_each(paths))


def read(path: _Path, quiet: bool = False) -> Recording:
    """Likewise in the file at PATH; of a folder, that of all ranks in it."""
    return read_all([*files([path])], quiet)
