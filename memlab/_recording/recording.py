"""memlab.Recording: a recording that was read, of one file or of all ranks of a run."""

from __future__ import annotations

import os

from memlab._files import merged
from memlab._files.merged import merge as _merge
from memlab._recording.answers import Answers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab import _core
    from memlab._core import _Path

__all__ = ["Recording", "merge", "open"]


class Recording(Answers):
    """A finished recording: what memlab.open() gives, immutable.

        recording = memlab.open("memlab_out")
        print(recording.summary())
        recording.peak()["by_category"]["activation"]
        print(recording.diff("memlab_before"))

    Sizes are in bytes and times in what their key says, _us or _ns, as ints.  Printed, the
    answers of diff(), oom(), ranks(), replay(), explain() and tune() are the text of the
    commands.
    """

    def __init__(self, data: _core.Recording, path: str | None = None) -> None:
        self._data = data
        self._path = path

    def data(self) -> _core.Recording:
        """The recording of the core, immutable."""
        return self._data

    @property
    def path(self) -> str | None:
        """The path that was opened, or the URI without user, password and query; None if
        none was.
        """
        return self._path


def open(path: _Path) -> Recording:
    """The recording in a file, in a folder with those of several ranks, or at a URI.

    path: a str, bytes or os.PathLike: a .mlab file, also one that is written meanwhile; a
    snapshot pickle by torch or memlab, plain or packed by gzip; a folder, of which each
    rank's is read, as memlab.merge() does; or the URI of such, as s3://bucket/run, for
    which `pip install 'memlab[remote]'`.  A pickle is parsed, never executed.

    Raises SnapshotError for what is no recording or is damaged, OSError for what cannot be
    read, and memlab.Error, with what to do, for a folder without a recording and a URI
    whose files cannot be got.
    """
    return Recording(merged.read(path), merged.name_of(path))


def merge(paths: _Path | Iterable[_Path]) -> Recording:
    """One recording of several ranks; ranks() says which one stands out.

    paths: files as for memlab.open(), one of each rank, or a folder that has them, with
    the rank in each name, as in rank0.mlab.  Every device of every rank becomes a device,
    clocks are aligned; docs/TRAINERS.md says how.  save() writes it.

    Raises memlab.Error for two files of one rank, ValueError for recordings of different
    sources, and what memlab.open() raises.
    """
    one = isinstance(paths, (str, bytes, os.PathLike))
    return Recording(_merge([paths] if one else list(paths)))  # type: ignore[list-item, arg-type]
