"""Composer's uploads, for memlab's callbacks.

Owns who takes a file: the loggers of Composer, an uploader of Composer's that is made for
a URI, as its Trainer makes one for its own callbacks, or memlab's own.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref

from memlab._errors import tell
from memlab._files import names, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Of Composer's backends, those that need no other rank to be made.
_SCHEMES = "s3:", "gs:", "oci:", "azure:"

# The events at which Composer's uploader raises what its workers met, and those at which it
# waits for all files of all ranks: for ever, if one of these has no uploader.
_RAISING = "batch_end", "epoch_end"
_WAITING = "fit_end", "eval_standalone_end", "predict_end"

# Seconds that the end of a training waits for files instead.
_END_SECONDS = 5.0

# Names that are tried in a store before one is given up.
_MOST_NAMES = 100

# By logger: the names of files that it was given.
_sent: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def make_uploader(uri: str | None, state: Any, logger: Any) -> None:
    """Adds Composer's uploader for the bucket of URI to the loggers, at the start of a run,
    unless one has it; does nothing if Composer has none for it.

    What fails in it is told, and does not end the run.
    """
    if uri is None or not uri.startswith(_SCHEMES) or has_bucket(logger, uri):
        return
    helpers = sys.modules.get("composer.utils.file_helpers")
    make = getattr(helpers, "maybe_create_remote_uploader_downloader_from_uri", None)
    if make is None:
        return
    try:
        made = make(uri, loggers=list(logger.destinations))
        if made is None:
            return
        made.init(state, logger)
    except Exception as error:
        tell(
            f"Composer's uploader for {store.shown(uri)} cannot be used: "
            f"{store.described(error)}; memlab uploads itself, if it can"
        )
        return
    # The engine calls the init of every callback; this one's was called.
    made.init = _nothing
    told: list[Exception] = []
    for name in _RAISING:
        setattr(made, name, _quiet(getattr(made, name), told))
    for name in _WAITING:
        setattr(made, name, _quiet(functools.partial(_wait, made), told))
    logger.destinations = (*logger.destinations, made)
    state.callbacks.append(made)


def _nothing(state: Any, logger: Any) -> None:
    pass


def _wait(uploader, state, logger):
    """Waits for the files of this rank, and raises what the workers met."""
    ends = time.monotonic() + _END_SECONDS
    while uploader._logged_objects or uploader._enqueued_objects:
        if not uploader._all_workers_alive or time.monotonic() > ends:
            break
        time.sleep(0.05)
    uploader._check_workers()


def _quiet(method, told):
    """METHOD of an uploader, of whose errors the first is told instead."""

    def quiet(state, logger):
        try:
            method(state, logger)
        except Exception as error:
            if not told:
                told.append(error)
                tell(
                    "Composer's uploader of memlab's files failed: "
                    f"{store.described(error)}; the files stay here"
                )

    return quiet


def sender(logger: Any) -> Callable[[str, str, bool], None]:
    """A function that sends a file as Composer does: to all loggers that take files,
    under the path of its name.  If the name is a URI whose bucket no logger has, it
    goes to the URI.

    Without OVERWRITE, a name that another callback has used, or that is in the store of
    one of Composer's uploaders, whose error would end the run, gets a number.
    """

    def send(path: str, name: str, overwrite: bool) -> None:
        if not overwrite:
            name = _unused(logger, name)
        try:
            logger.upload_file(
                remote_file_name=names.remote_key(name),
                file_path=path,
                overwrite=overwrite,
            )
        finally:
            if names.is_uri(name) and not has_bucket(logger, name):
                from memlab._files import upload

                upload.send(path, name, overwrite)

    return send


def _unused(logger, name):
    taken = _sent.setdefault(logger, set())
    found = names.not_taken(name, taken)
    stored = 0
    while _is_stored(logger, names.remote_key(found)) and stored < _MOST_NAMES:
        stored += 1
        found = names.not_taken(name, taken)
    if stored:
        tell(f"{store.shown(name)} is in the bucket already; {store.shown(found)} is new")
    return found


def _is_stored(logger, key):
    """Whether the store of one of Composer's uploaders has KEY."""
    for destination in getattr(logger, "destinations", None) or ():
        backend = getattr(destination, "remote_backend", None)
        name = getattr(destination, "_remote_file_name", None)
        if backend is None or name is None:
            continue
        try:
            backend.get_object_size(name(key))
        except Exception:
            # FileNotFoundError, or what the upload itself will meet.
            continue
        return True
    return False


def has_bucket(logger: Any, uri: str) -> bool:
    """Whether a logger of Composer's has the bucket of URI; true for a logger that does
    not tell its destination.
    """
    destinations = getattr(logger, "destinations", None)
    if destinations is None:
        return True
    # Some backends have another name than their scheme; dbfs:/path has only one.
    scheme, _, rest = uri.partition(":")
    bucket = rest.removeprefix("//").partition("/")[0].partition("@")[0]
    name, wanted = (
        ("remote_bucket_name", bucket) if bucket else ("remote_backend_name", scheme)
    )
    return any(getattr(d, name, None) == wanted for d in destinations)
