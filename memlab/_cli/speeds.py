"""How long a command takes for a byte of its files: as long as it last took here.

Owns the file that keeps this, in the user's cache.  What cannot be read or kept is not
known, and no error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from memlab._native import cache

# Of a folder, what commands read.
_RECORDINGS = (".mlab", ".pickle", ".gz")


def _kept() -> str:
    return os.path.join(cache.folder(), "speeds.json")


def size_of(paths: Iterable[object]) -> int:
    """Bytes of those of PATHS that are files, and of the recordings in those that are
    folders.
    """
    total = 0
    for path in paths:
        if not isinstance(path, str):
            continue
        try:
            if os.path.isdir(path):
                with os.scandir(path) as entries:
                    total += sum(
                        entry.stat().st_size
                        for entry in entries
                        if entry.name.endswith(_RECORDINGS)
                    )
            elif os.path.isfile(path):
                total += os.path.getsize(path)
        except (OSError, ValueError):
            pass
    return total


def _all() -> dict[str, float]:
    import json

    try:
        with open(_kept(), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {
        key: float(value)
        for key, value in known.items()
        if isinstance(value, (int, float)) and 0 < value < 1
    }


def seconds(command: str, size: int) -> float | None:
    """Seconds that COMMAND will take for SIZE bytes; None: not known."""
    rate = _all().get(command) if size > 0 else None
    return None if rate is None else rate * size


def keep(command: str, size: int, took: float) -> None:
    """Keeps that COMMAND took TOOK seconds for SIZE bytes."""
    if size <= 0:
        return
    import json

    path = _kept()
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(part, "w", encoding="utf-8") as file:
            json.dump({**_all(), command: took / size}, file)
        os.replace(part, path)
    except (OSError, ValueError):
        pass
