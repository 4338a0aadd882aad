"""The version, for those that memlab/__init__.py imports."""

__version__ = "0.1.0"
