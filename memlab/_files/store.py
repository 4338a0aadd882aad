"""One key of a store known to fsspec: how it is found, and uploads to it, whole or not at
all.

Owns how a key is written, which failures are retried, and the words of failures.
Messages contain no text of the store's, whose errors quote URLs and headers with
credentials.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re

from memlab import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# In these stores an object appears only when its upload is complete.  They need no
# second name, which would need the right to delete, and a copy of all bytes.
_WHOLE = frozenset(
    "s3 s3a gs gcs abfs abfss az oss oci ocilake hf http https".split()
)
_HTTP = frozenset(("http", "https"))

_PERMANENT = (
    AttributeError,
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    TypeError,
    ValueError,
)
_PERMANENT_NUMBERS = frozenset(
    (errno.ENAMETOOLONG, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
)
# Client errors that pass: timeout, too early, too many requests.
_PASSING = frozenset((408, 425, 429))

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Refused(Exception):
    """An upload failed; the text, which is memlab's own, says why and what to do.

    passing: another attempt may succeed.
    """

    def __init__(self, text, passing=False):
        super().__init__(text)
        self.passing = passing


def shown(uri: str) -> str:
    """URI for messages: without user, password, query and fragment."""
    scheme, separator, rest = uri.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, key = rest.partition("/")
    _, colon, port = host.rpartition(":")
    if colon and "@" not in host and ("@" in key or not port.isdigit()):
        # Possibly not a port: a password may contain a slash.
        return scheme + separator + (rest.rpartition("@")[2] if "@" in rest else "")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{key}"


def scheme_of(uri: str) -> str:
    """The scheme of URI.  Raises Refused if it has none."""
    match = _SCHEME.match(uri)
    if match is None:
        raise Refused("it is no URI with ://; write for example s3://bucket/name")
    return match[1].lower()


def described(error: BaseException) -> str:
    """ERROR in words without secrets."""
    if isinstance(error, Refused):
        return str(error)
    text = type(error).__name__
    status, code = _status(error), _code(error)
    if status is not None:
        text += f" {status}"
    if code is not None:
        text += f" {code}"
    elif status is None and getattr(error, "errno", None) in errno.errorcode:
        text += f" ({os.strerror(error.errno)})"
    if isinstance(error, PermissionError) or status in (401, 403):
        text += "; check the credentials that fsspec finds for this store"
    elif isinstance(error, FileNotFoundError) or status == 404:
        text += "; check that the bucket or folder is there"
    return text


def passes(error: BaseException) -> bool:
    """Whether another attempt may succeed after ERROR."""
    if isinstance(error, Refused):
        return error.passing
    status = _status(error)
    if status is not None and 400 <= status < 500:
        return status in _PASSING
    if isinstance(error, OSError) and error.errno in _PERMANENT_NUMBERS:
        return False
    return isinstance(error, Exception) and not isinstance(error, _PERMANENT)


def _status(error):
    """The HTTP status in ERROR, of aiohttp, requests or botocore."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        metadata = response.get("ResponseMetadata")
        told = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    else:
        told = getattr(error, "status", None) or getattr(error, "status_code", None)
        told = told or getattr(response, "status_code", None)
    return told if isinstance(told, int) and 100 <= told < 600 else None


def _code(error):
    """botocore's name of an error, such as AccessDenied."""
    response = getattr(error, "response", None)
    told = response.get("Error") if isinstance(response, dict) else None
    code = told.get("Code") if isinstance(told, dict) else None
    return code if isinstance(code, str) and re.fullmatch("[A-Za-z]{1,40}", code) else None


def find(uri: str) -> tuple[str, Any, str]:
    """The scheme of URI, its store, and the key there.  Raises Refused, and the store's
    errors.
    """
    scheme = scheme_of(uri)
    try:
        import fsspec
    except ImportError:
        raise Refused('fsspec is not installed: pip install "memlab[remote]"') from None
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError:
        from fsspec.registry import known_implementations

        remedy = known_implementations.get(scheme, {}).get("err")
        raise Refused(f"{scheme}:// needs a package: {remedy}") from None
    except ValueError:
        raise Refused(f"fsspec knows no {scheme}://") from None
    return scheme, *fsspec.core.url_to_fs(uri)


class Upload:
    """The upload of the contents of DESCRIPTOR, opened from PATH, to URI.

    Without overwrite, an existing key stays unchanged.
    """

    def __init__(self, descriptor, path, uri, overwrite):
        self._descriptor = descriptor
        self._path = path
        self._uri = uri
        # The remains of memlab's own earlier attempt may be replaced.
        self._free = overwrite

    def attempt(self) -> None:
        """Uploads it.  Raises the store's errors, and Refused."""
        scheme, store, key = find(self._uri)
        before = os.fstat(self._descriptor)
        if scheme in _WHOLE:
            self._look(store, key)
            how = {"method": "put", "allow_redirects": False} if scheme in _HTTP else {}
            store.put_file(self._source(before), key, **how)
            if scheme in _HTTP:
                # fsspec takes a redirect for success.
                _check_size(store, key, before.st_size)
            self._check_unchanged(before, store, key)
        else:
            self._look(store, key, folders=True)
            store.makedirs(store._parent(key), exist_ok=True)
            if scheme in ("file", "local"):
                _core.write_file(key, lambda name: self._put(store, name, before))
            else:
                self._by_temporary(store, key, before)

    def _look(self, store, key, folders=False):
        """Raises Refused if KEY exists."""
        if self._free and not folders:
            return
        try:
            info = store.info(key)
        except FileNotFoundError as error:
            # fsspec raises the same if an HTTP server did not answer.
            cause = error.__cause__
            absent = cause is None or isinstance(cause, FileNotFoundError)
            if not absent and _status(cause) not in (404, 410):
                raise cause from None
        else:
            if folders and info.get("type") == "directory":
                raise Refused("there is a folder of that name")
            if not self._free:
                raise Refused("it is there already; overwrite=True replaces it")
        self._free = True

    def _source(self, before):
        """A path of the file, its own if possible: stores take the content type from
        the ending.
        """
        with contextlib.suppress(OSError):
            now = os.stat(self._path)
            if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):
                return self._path
        return f"/proc/self/fd/{self._descriptor}"

    def _check_unchanged(self, before, store, key):
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            _remove(store, key)
            raise Refused("it changed while it was read", passing=True)

    def _put(self, store, key, before):
        store.put_file(self._source(before), key)
        _check_size(store, key, before.st_size)
        self._check_unchanged(before, store, key)

    def _by_temporary(self, store, key, before):
        """Uploads under a temporary name, then renames it to the key."""
        temporary = f"{key}.memlab-{os.urandom(6).hex()}.tmp"
        try:
            self._put(store, temporary, before)
            store.mv(temporary, key)
        except BaseException:
            _remove(store, temporary)
            raise


def _check_size(store, key, size):
    try:
        there = store.info(key).get("size")
    except FileNotFoundError:
        raise Refused("the store took it and does not show it") from None
    if there != size:
        raise Refused(f"the store has {there} of its {size} bytes", passing=True)


def _remove(store, key):
    # It may not exist, or the store may be gone.
    with contextlib.suppress(Exception):
        store.rm_file(key)
