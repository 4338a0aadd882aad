"""pytorch_memlab.line_profiler."""

from memlab.compat.pytorch_memlab.line_profiler.line_profiler import LineProfiler
from memlab.compat.pytorch_memlab.line_profiler.profile import (
    clear_global_line_profiler,
    profile,
    profile_every,
    set_target_gpu,
)

__all__ = [
    "LineProfiler",
    "clear_global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
]
