"""The version, for the modules that memlab/__init__.py imports."""

__version__ = "0.1.0"
