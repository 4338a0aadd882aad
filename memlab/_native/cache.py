"""The folder in which memlab keeps what it makes on this machine."""

import os


def folder() -> str:
    """MEMLAB_CACHE, else memlab's folder in the user's cache.  It need not be there."""
    chosen = os.environ.get("MEMLAB_CACHE")
    if chosen:
        return chosen
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.join(os.path.expanduser(base), "memlab")
