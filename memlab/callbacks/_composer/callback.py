"""Common parts of memlab's callbacks for Composer: a guard for the training, uploads,
folders.

Composer's objects are used only through their calls; none is imported.
"""

from __future__ import annotations

import contextlib
import os
import sys

from memlab._errors import tell
from memlab._files import names, store
from memlab._record import composer_hooks, composer_uploads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Callback(composer_hooks.Callback):
    """A callback that cannot raise into the training run."""

    _told = frozenset()

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        """Reports an exception of its block, and suppresses it."""
        try:
            yield
        except Exception as error:
            self._complain(what, f"{type(error).__name__}: {error}")

    def _complain(self, what, reason):
        """Warns that WHAT, once for each text."""
        if what not in self._told:
            self._told |= {what}
            tell(f"{type(self).__name__}: {what}: {reason}; the training goes on")

    def _send(self, logger, path, name, overwrite):
        """Uploads the file at PATH by LOGGER as NAME; returns whether it succeeded."""
        try:
            composer_uploads.sender(logger)(path, name, overwrite)
        except FileExistsError as error:
            self._complain(
                "a file was not uploaded and stays here; overwrite=True would replace "
                "what is there",
                store.described(error),
            )
        except Exception as error:
            # Its text may contain credentials.
            self._complain(
                "a file was not uploaded and stays here", store.described(error)
            )
        else:
            return True
        return False


def group() -> Any:
    """torch.distributed if this process is in a group; else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return None
    return distributed if distributed.is_initialized() else None


def prepare_folder(template: str, run_name: str, overwrite: bool) -> str:
    """Makes this rank's folder, and returns its absolute path.  Called at init.

    Raises FileExistsError if OVERWRITE is false and it has files, unless the run is
    resumed, which is told; OSError if it cannot be made, ValueError for a name that leads
    out of it.
    """
    folder = os.path.abspath(names.fill(template, run_name=run_name))
    names.make_folder(folder)
    if not overwrite:
        names.require_empty(folder, composer_hooks.resumes())
    return folder
