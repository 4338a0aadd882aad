"""The program's lines behind the code that torch.compile generates.

torch's recorder asks for them when a snapshot is made.  Files need them earlier, so
that they exist however the process ends.
"""

import sys

from memlab import _core
from memlab._errors import tell

_failed = False


def take() -> None:
    """Takes torch's current line maps.  Imports nothing and never raises.  If nothing
    was compiled since the last call, it only compares a length.
    """
    global _failed
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    if cache is None or _failed:
        return
    try:
        _core.take_linemaps(cache.linemaps)
    except Exception as error:
        _failed = True
        tell(f"lines of compiled code are no longer followed: {error!r}")
