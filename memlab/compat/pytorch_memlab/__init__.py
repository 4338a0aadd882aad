"""pytorch_memlab's names, answered by memlab.

Where a script says ``from pytorch_memlab import LineProfiler, profile`` it says::

    from memlab.compat.pytorch_memlab import LineProfiler, profile

and ``%load_ext pytorch_memlab`` becomes ``%load_ext memlab``.  The modules below it have
pytorch_memlab's names too, as ``memlab.compat.pytorch_memlab.utils``.

For code of others that imports pytorch_memlab, provide() gives it this package::

    from memlab.compat import pytorch_memlab
    pytorch_memlab.provide()
"""

import importlib
import sys

from memlab import load_ipython_extension
from memlab._errors import Error
from memlab.compat.pytorch_memlab.courtesy import Courtesy
from memlab.compat.pytorch_memlab.line_profiler import (
    LineProfiler,
    clear_global_line_profiler,
    profile,
    profile_every,
    set_target_gpu,
)
from memlab.compat.pytorch_memlab.mem_reporter import MemReporter

__all__ = [
    "Courtesy",
    "LineProfiler",
    "MemReporter",
    "clear_global_line_profiler",
    "load_ipython_extension",
    "profile",
    "profile_every",
    "provide",
    "set_target_gpu",
]

_NAME = "pytorch_memlab"
_MODULES = (
    "",
    ".courtesy",
    ".line_profiler",
    ".line_profiler.line_profiler",
    ".line_profiler.line_records",
    ".line_profiler.profile",
    ".mem_reporter",
    ".utils",
)


def provide() -> None:
    """From now on, ``import pytorch_memlab`` in this process means this package.

    Call it before the code that imports it.  Raises memlab.Error if pytorch_memlab itself
    is imported already.
    """
    there = sys.modules.get(_NAME)
    if there not in (None, sys.modules[__name__]):
        raise Error(
            f"{_NAME} itself is imported already, from {there.__file__}; call provide() first"
        )
    for name in _MODULES:
        sys.modules[_NAME + name] = importlib.import_module(__name__ + name)
