"""pytorch_memlab's names, answered by memlab.

Where a script says ``from pytorch_memlab import LineProfiler, profile`` it says::

    from memlab.compat.pytorch_memlab import LineProfiler, profile

and ``%load_ext pytorch_memlab`` becomes ``%load_ext memlab``.
"""

from memlab import (
    LineProfiler,
    clear_global_line_profiler,
    load_ipython_extension,
    profile,
    profile_every,
    set_target_gpu,
)

__all__ = [
    "LineProfiler",
    "clear_global_line_profiler",
    "load_ipython_extension",
    "profile",
    "profile_every",
    "set_target_gpu",
]


def __getattr__(name: str) -> object:
    if name in ("Courtesy", "MemReporter"):
        raise ImportError(f"memlab has no {name} yet; pytorch_memlab's own still works")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
