"""Files of a store known to fsspec, by their URI: copied here to be read.

Owns which paths are URIs of stores, and the errors of reading from one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from memlab._errors import Error
from memlab._files import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._core import _Path

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Listing a page of the web would read all of it.
_WITHOUT_FOLDERS = ("http", "https")


def is_uri(path: _Path) -> bool:
    """Whether PATH is a URI, and no file here has that name."""
    path = os.fsdecode(path)
    return _URI.match(path) is not None and not os.path.exists(path)


@contextlib.contextmanager
def here(path: _Path) -> Iterator[tuple[_Path, str]]:
    """(a path to read from, the name for messages) of PATH; of a URI, of a copy that is
    removed at the end.  Raises memlab.Error, with what to do, if there is none.
    """
    if not is_uri(path):
        yield path, os.fsdecode(path)
        return
    import tempfile

    uri = os.fsdecode(path)
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder:
        copy = os.path.join(folder, "recording")
        with _errors_of(uri):
            _, there, key = store.find(uri)
            there.get_file(key, copy)
        yield copy, store.shown(uri)


def names_in(uri: str) -> list[str] | None:
    """The names of the files in the folder URI; None if it is a file.  Raises
    memlab.Error as here() does.
    """
    with _errors_of(uri):
        scheme, there, key = store.find(uri)
        if scheme in _WITHOUT_FOLDERS or not there.isdir(key):
            return None
        return [os.path.basename(found.rstrip("/")) for found in there.ls(key, detail=False)]


def matching(uri: str) -> list[str]:
    """The URIs of the files that URI, with * or ?, matches, in order.  Raises memlab.Error
    as here() does.
    """
    with _errors_of(uri):
        _, there, key = store.find(uri)
        return sorted(map(there.unstrip_protocol, there.glob(key)))


@contextlib.contextmanager
def _errors_of(uri):
    try:
        yield
    except Exception as error:
        # Of a store's error only parts that can contain no credentials.
        raise Error(f"{store.shown(uri)}: {store.described(error)}") from None
