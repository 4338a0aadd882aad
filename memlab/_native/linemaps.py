"""The lines of the program behind the code that torch.compile writes.

torch's recorder asks for them when a snapshot is made, and so are they taken here; files
want them earlier, so that they are there however the process ends."""

import sys

from memlab import _core
from memlab._errors import tell

_failed = False


def take() -> None:
    """Takes what torch knows by now.  Imports nothing and never raises; a look at a length
    where nothing was compiled since the last."""
    global _failed
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    if cache is None or _failed:
        return
    try:
        _core.take_linemaps(cache.linemaps)
    except Exception as error:
        _failed = True
        tell(f"lines of compiled code are no longer followed: {error!r}")
