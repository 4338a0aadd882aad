"""pytorch_memlab.mem_reporter."""

from memlab import MemReporter

__all__ = ["MemReporter"]
