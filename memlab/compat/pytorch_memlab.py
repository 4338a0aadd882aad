"""pytorch_memlab's names, answered by memlab.

Where a script says ``from pytorch_memlab import LineProfiler, profile`` it says::

    from memlab.compat.pytorch_memlab import LineProfiler, profile

and ``%load_ext pytorch_memlab`` becomes ``%load_ext memlab``.
"""

from memlab import (
    Courtesy,
    LineProfiler,
    MemReporter,
    clear_global_line_profiler,
    load_ipython_extension,
    profile,
    profile_every,
    set_target_gpu,
)

__all__ = [
    "Courtesy",
    "LineProfiler",
    "MemReporter",
    "clear_global_line_profiler",
    "load_ipython_extension",
    "profile",
    "profile_every",
    "set_target_gpu",
]
