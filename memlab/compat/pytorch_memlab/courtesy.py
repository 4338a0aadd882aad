"""pytorch_memlab.courtesy."""

from memlab import Courtesy

__all__ = ["Courtesy"]
