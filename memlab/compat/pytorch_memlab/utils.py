"""pytorch_memlab.utils."""

from memlab._text.line_text import readable_size

__all__ = ["readable_size"]
