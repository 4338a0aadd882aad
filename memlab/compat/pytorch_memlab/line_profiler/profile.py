"""pytorch_memlab.line_profiler.profile."""

from memlab import clear_global_line_profiler, profile, profile_every, set_target_gpu

__all__ = ["clear_global_line_profiler", "profile", "profile_every", "set_target_gpu"]
