"""memlab.view: the page of a recording, and where it is written."""

from __future__ import annotations

import os

from memlab import _core
from memlab._files import download, merged, names
from memlab._page import page
from memlab._report import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlab._core import Recording, _Path
    from memlab._files.merged import AnyRecording

__all__ = ["view"]

_PAGE = "memlab.html"


def view(recording: AnyRecording | None = None, out: _Path | None = None) -> str:
    """Writes an HTML page that shows a recording and needs no other file; returns its
    path.

    recording: what memlab.open() takes or gives, or a MemorySnapshot.  Without it the page
    is empty: drop a recording onto it.  out: the page to write; None: beside the file,
    ending in .html, in the folder, or memlab.html here for what is of no file.

    Raises OSError, and what memlab.open() and MemorySnapshot.data() raise.
    """
    if recording is None:
        path = os.fsdecode(out or _PAGE)
        _core.write_file(path, page.assemble_empty())
        return path
    data, name = merged.recorded(recording, quiet=True)
    path = os.fsdecode(out or beside(name))
    _core.write_file(path, page_of(data, title_of(name)))
    return path


def page_of(recording: Recording, title: str = "") -> Iterator[bytes]:
    """The page of RECORDING, piece by piece."""
    return page.of(recording, title=title, notes=report.file_notes(recording.file))


def title_of(name: str) -> str:
    """The title of the page of a recording by its NAME, a path or URI."""
    return "" if name == merged.UNNAMED else os.path.basename(os.path.normpath(name))


def beside(name: str) -> str:
    """Where the page of a recording of the NAME goes: into a folder, beside a file, else here."""
    if name == merged.UNNAMED or download.is_uri(name) or not os.path.exists(name):
        return _PAGE
    if os.path.isdir(name):
        return os.path.join(name, _PAGE)
    return names.without_ending(name) + ".html"
